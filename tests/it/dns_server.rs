//! A name server on the loopback, over UDP: the zone is whatever the test says at the moment.
//!
//! It encodes with the resolver's own library and decides by itself. A whole server from a crate
//! would bring a zone format, a cache and a hundred dependencies to answer three kinds of question.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    sync::{Arc, Mutex},
    thread,
};

use hickory_proto::{
    op::{Message, MessageType, ResponseCode},
    rr::{
        Name, RData, Record, RecordType,
        rdata::{A, SRV},
    },
};

/// What names lead to.
#[derive(Default)]
pub(crate) struct Zone {
    pub(crate) addresses: BTreeMap<&'static str, Vec<Ipv4Addr>>,
    pub(crate) services: BTreeMap<&'static str, Vec<(&'static str, u16)>>,
    /// Every question is answered with a failure.
    pub(crate) fails: bool,
}

/// Answers until the test process ends.
pub(crate) struct NameServer {
    pub(crate) address: SocketAddr,
    pub(crate) zone: Arc<Mutex<Zone>>,
}

impl NameServer {
    pub(crate) fn start(zone: Zone) -> NameServer {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let zone = Arc::new(Mutex::new(zone));
        let shared = Arc::clone(&zone);
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                let Ok(question) = Message::from_vec(&buffer[..length]) else { continue };
                let answer = answer(&shared.lock().unwrap(), question);
                // Whoever asked may have gone.
                drop(socket.send_to(&answer.to_vec().unwrap(), from));
            }
        });
        NameServer { address, zone }
    }

    /// From now on the zone is another one.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Zone)) {
        change(&mut self.zone.lock().unwrap());
    }
}

fn answer(zone: &Zone, question: Message) -> Message {
    let mut answer = Message::response(question.metadata.id, question.metadata.op_code);
    answer.metadata.message_type = MessageType::Response;
    answer.metadata.recursion_available = true;
    let query = question.queries.into_iter().next().unwrap();
    let (name, kind) = (query.name().clone(), query.query_type());
    answer.add_query(query);
    if zone.fails {
        answer.metadata.response_code = ResponseCode::ServFail;
        return answer;
    }
    let wanted = name.to_ascii().trim_end_matches('.').to_lowercase();
    let (addresses, services) =
        (zone.addresses.get(wanted.as_str()), zone.services.get(wanted.as_str()));
    if addresses.is_none() && services.is_none() {
        answer.metadata.response_code = ResponseCode::NXDomain;
    }
    let mut add = |data: RData| {
        answer.add_answer(Record::from_rdata(name.clone(), 300, data));
    };
    match kind {
        RecordType::A => addresses.into_iter().flatten().for_each(|ip| add(RData::A(A(*ip)))),
        RecordType::SRV => services.into_iter().flatten().for_each(|(target, port)| {
            let target: Name = format!("{target}.").parse().unwrap();
            add(RData::SRV(SRV::new(0, 0, *port, target)));
        }),
        _ => (),
    }
    answer
}
