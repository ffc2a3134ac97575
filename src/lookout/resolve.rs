//! One look at a name: the addresses that it leads to now.
//!
//! No records is an answer, and everything else that is not a whole answer is a failure: half of
//! the addresses would close the engines at the other half.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use hickory_resolver::{
    TokioResolver,
    config::{ConnectionConfig, NameServerConfig, ResolverConfig},
    net::{DnsError, NetError, runtime::TokioRuntimeProvider},
    proto::{
        op::ResponseCode,
        rr::{RData, Record, RecordType},
    },
};

use crate::{
    config::{self, limits},
    discovery::{Address, Refusal},
};

/// Asks name servers.
pub(super) struct Names(Result<TokioResolver, String>);

impl Names {
    /// Of that server, else as the system has it.
    pub(super) fn new(nameserver: Option<SocketAddr>) -> Names {
        let builder = match nameserver {
            Some(address) => {
                let of_server = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut to| {
                    to.port = address.port();
                    to
                });
                let server = NameServerConfig::new(address.ip(), true, of_server.into());
                let config = ResolverConfig::from_parts(None, Vec::new(), vec![server]);
                let provider = TokioRuntimeProvider::default();
                Ok(TokioResolver::builder_with_config(config, provider))
            }
            None => TokioResolver::builder_tokio(),
        };
        let resolver = builder.and_then(|mut builder| {
            let options = builder.options_mut();
            // How old an answer may be is our own choice: a record that lives for an hour would
            // hide a vanished engine as long.
            options.cache_size = 0;
            options.timeout = limits::RESOLVE_DEADLINE;
            builder.build()
        });
        Names(resolver.map_err(|error| error.to_string()))
    }

    /// Where the engines are that the name leads to; none where it leads nowhere.
    pub(super) async fn resolve(
        &self,
        name: &str,
        port: Option<u16>,
    ) -> Result<Vec<Address>, Refusal> {
        let Some(port) = port else { return self.services(name).await };
        let of_ip = |ip: IpAddr| Address { host: config::ip_text(ip), port, ip: Some(ip) };
        Ok(self.addresses(name).await?.into_iter().map(of_ip).collect())
    }

    /// Each target with its first address: a target is one engine, however it is reached.
    async fn services(&self, name: &str) -> Result<Vec<Address>, Refusal> {
        let mut targets = BTreeMap::new();
        for record in self.records(name, RecordType::SRV).await? {
            let RData::SRV(service) = record.data else { continue };
            let host = service.target.to_utf8().trim_end_matches('.').to_owned();
            if !host.is_empty() && service.port > 0 {
                targets.insert((host, service.port), service.target);
            }
        }
        let mut found = Vec::new();
        // The same ones at every look, whatever order the records come in.
        for ((host, port), target) in targets.into_iter().take(limits::DISCOVERY_ENGINES_MAX) {
            // A target without an address is as if it were not named.
            if let Some(ip) = self.addresses(&target.to_utf8()).await?.into_iter().next() {
                found.push(Address { host, port, ip: Some(ip) });
            }
        }
        Ok(found)
    }

    async fn addresses(&self, name: &str) -> Result<Vec<IpAddr>, Refusal> {
        let (v4, v6) =
            tokio::join!(self.records(name, RecordType::A), self.records(name, RecordType::AAAA));
        let mut found: Vec<IpAddr> = Vec::new();
        for record in v4?.into_iter().chain(v6?) {
            match record.data {
                RData::A(ip) => found.push(IpAddr::V4(ip.0)),
                RData::AAAA(ip) => found.push(IpAddr::V6(ip.0)),
                _ => (),
            }
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    async fn records(&self, name: &str, kind: RecordType) -> Result<Vec<Record>, Refusal> {
        let refusal = |reason, detail| Refusal { reason, detail };
        let resolver = self.0.as_ref().map_err(|error| refusal("no_resolver", error.clone()))?;
        match resolver.lookup(name, kind).await {
            Ok(found) => Ok(found.answers().to_vec()),
            Err(error) if is_no_records(&error) => Ok(Vec::new()),
            Err(error) => Err(refusal("resolver_failed", format!("{kind} of {name}: {error}"))),
        }
    }
}

/// A whole answer that says that there is nothing.
fn is_no_records(error: &NetError) -> bool {
    let NetError::Dns(DnsError::NoRecordsFound(none)) = error else { return false };
    matches!(none.response_code, ResponseCode::NXDomain | ResponseCode::NoError)
}
