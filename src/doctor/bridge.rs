//! From what a running kvbridge says of itself to findings.

use std::collections::BTreeSet;

use super::{
    DrainSight, Finding, drain_cause, names,
    table::{
        ALARM_CRITICAL, ALARM_WARNING, BRIDGE_EMPTY, BRIDGE_NOT_READY, BRIDGE_UNREACHABLE,
        REPLICA_TRUSTED, REPLICA_UNTRUSTED,
    },
};

/// What a running kvbridge says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BridgeSight {
    /// Why it could not be asked; the rest is then empty.
    pub unreachable: Option<String>,
    /// Why it is not ready.
    pub unready: Option<String>,
    /// Its replicas.
    pub replicas: Vec<ReplicaSight>,
    /// What rings.
    pub alarms: Vec<AlarmSight>,
    /// The names that a router sends to.
    pub router: Option<Vec<String>>,
}

/// One replica as the kvbridge has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicaSight {
    /// Its key.
    pub key: String,
    /// What routers call it.
    pub instance: String,
    /// Trust.
    pub trust: String,
    /// Why it is no better.
    pub reason: String,
    /// How its events are taken, where they are.
    pub drain: Option<DrainSight>,
}

/// One alarm that rings, in the registry's words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlarmSight {
    /// Key of the replica.
    pub replica: String,
    /// Its name.
    pub alarm: String,
    /// It must be looked at now.
    pub is_critical: bool,
    /// What is the case.
    pub meaning: String,
    /// Where to look first.
    pub first_look: String,
    /// What ends it.
    pub action: String,
}

/// Everything that follows.
pub fn bridge(sight: &BridgeSight) -> Vec<Finding> {
    let about = |about| Finding::new(about, None);
    if let Some(why) = &sight.unreachable {
        return vec![about(&BRIDGE_UNREACHABLE).seen(why)];
    }
    let mut found = Vec::new();
    if let Some(why) = &sight.unready {
        found.push(about(&BRIDGE_NOT_READY).seen(why));
    }
    if sight.replicas.is_empty() {
        found.push(about(&BRIDGE_EMPTY));
    }
    for replica in &sight.replicas {
        let is_exact = replica.trust == "exact";
        let row = if is_exact { &REPLICA_TRUSTED } else { &REPLICA_UNTRUSTED };
        let detail = format!("{} ({})", replica.trust, replica.reason);
        found.push(about(row).of(&replica.key).seen(detail));
        if let Some(cause) = replica.drain.as_ref().and_then(drain_cause) {
            found.push(about(cause.about()).of(&replica.key));
        }
    }
    found.extend(sight.alarms.iter().map(|alarm| {
        let row = if alarm.is_critical { &ALARM_CRITICAL } else { &ALARM_WARNING };
        let detail = format!("{}: {}", alarm.alarm, alarm.meaning);
        let (cause, setting) = (alarm.first_look.clone(), alarm.action.clone());
        Finding { cause, setting, ..about(row).of(&alarm.replica).seen(detail) }
    }));
    if let Some(router) = &sight.router {
        let instances: BTreeSet<String> =
            sight.replicas.iter().map(|it| it.instance.clone()).collect();
        found.extend(names(router, &instances));
    }
    found
}
