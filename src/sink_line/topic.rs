//! Topics, by replica.

use kvbridge_schemas::Replica;

/// The topic of a replica: a template in which `{instance}`, `{model}` and `{rank}` stand for its
/// parts.
pub fn topic_of(template: &str, replica: &Replica) -> String {
    let mut topic = String::new();
    let mut rest = template;
    // From left to right, so that a name which looks like a placeholder stays what it is.
    while let Some((before, after)) = rest.split_once('{') {
        topic.push_str(before);
        let (name, behind) = after.split_once('}').unwrap_or((after, ""));
        match name {
            "instance" => topic.push_str(&replica.instance),
            "model" => topic.push_str(&replica.model),
            "rank" => topic.push_str(&replica.rank.to_string()),
            _ => topic.push_str(&format!("{{{name}}}")),
        }
        rest = behind;
    }
    topic.push_str(rest);
    topic
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_names_the_parts_once() {
        let replica = Replica { model: "{rank}".into(), instance: "h:1".into(), rank: 3 };
        let of = |template| topic_of(template, &replica);
        assert_eq!(of("kv@{instance}@{model}"), "kv@h:1@{rank}");
        assert_eq!(of("{rank}/{other}"), "3/{other}");
        assert_eq!(of("plain"), "plain");
        assert_eq!(of(""), "");
    }
}
