//! What of a configuration may be shown to whoever helps: everything but secrets.

use toml::{Table, Value};

use super::{FileText, Problems, layers::Layers};

/// Fields whose values are never shown: secrets, by their type in `file.rs`; the seed that makes
/// hashes guessable; and a table that only an adapter of the program understands.
const HIDDEN: &[&str] = &["token", "password", "nkey", "hash_seed", "options"];

/// File and environment as they are laid over each other, without secrets. Shown only of a
/// configuration that was proven: in another one a secret may stand under any name.
pub fn shown(file: Option<&FileText>, env: &[(String, String)]) -> Table {
    let mut table = Layers::read(file, env, &mut Problems::default()).into_table();
    table.iter_mut().for_each(|(name, value)| hide(name, value));
    table
}

fn hide(name: &str, value: &mut Value) {
    match value {
        _ if HIDDEN.contains(&name) => *value = Value::String("***".to_owned()),
        Value::Table(table) => table.iter_mut().for_each(|(name, value)| hide(name, value)),
        Value::Array(items) => items.iter_mut().for_each(|item| hide(name, item)),
        Value::String(text) => {
            *text = text.split(',').map(without_user).collect::<Vec<_>>().join(",")
        }
        Value::Integer(_) | Value::Float(_) | Value::Boolean(_) | Value::Datetime(_) => (),
    }
}

/// An address without who asks there.
fn without_user(text: &str) -> String {
    match text.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once('@')?))) {
        Some((scheme, (_, host))) => format!("{scheme}://***@{host}"),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_show_as_stars_wherever_they_stand() {
        let text = "[bus]\nurl = \"nats://ann:s3cret@h:1,nats://i:2\"\npassword = \"s3cret\"\n\
                    [[sources]]\nhash_seed = \"s3cret\"\nurl = \"http://h:1\"\n\
                    [sources.options]\nkey = \"s3cret\"\n";
        let file = FileText { name: "f".to_owned(), text: text.to_owned() };
        let env = [("KVBRIDGE__BUS__TOKEN".to_owned(), "s3cret".to_owned())];
        let told = format!("{:?}", shown(Some(&file), &env));
        assert!(!told.contains("s3cret") && !told.contains("ann"), "{told}");
        for kept in ["nats://***@h:1,nats://i:2", "http://h:1", "password", "token"] {
            assert!(told.contains(kept), "{kept} in {told}");
        }
    }

    #[test]
    fn every_secret_of_the_file_is_hidden() {
        let secrets = include_str!("file.rs")
            .lines()
            .filter_map(|line| line.trim().strip_prefix("pub ")?.strip_suffix(": Option<Secret>,"));
        let secrets: Vec<&str> = secrets.collect();
        assert!(secrets.len() >= 3, "the fields are not found: {secrets:?}");
        assert!(secrets.iter().all(|name| HIDDEN.contains(name)), "{secrets:?}");
    }
}
