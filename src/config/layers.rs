//! Lays environment over file and reads the result into [`File`], collecting every problem of form.
//!
//! A configuration library was tried on paper: it stops at the first wrong field and reads the
//! environment itself. Here all fields are reported, and `main.rs` alone reads the environment.

use std::collections::BTreeMap;

use serde_path_to_error::Segment;
use toml::{Table, Value};

use super::{File, Problems};

/// Prefix of the environment variables, `KVBRIDGE__SECTION__FIELD`.
pub const ENV_PREFIX: &str = "KVBRIDGE__";

/// Problems after which reading stops: nobody corrects more in one go.
const PROBLEM_COUNT_MAX: usize = 100;

/// Largest index accepted in `KVBRIDGE__SOURCES__<n>__…`; a typo must not allocate a huge list.
const ENV_INDEX_MAX: usize = 1023;

/// The configuration file as read.
#[derive(Clone, Debug)]
pub struct FileText {
    /// Its name, for messages.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// File and environment together, not typed yet.
#[derive(Default)]
pub(super) struct Layers {
    table: Table,
    file_name: Option<String>,
    /// Field path → environment variable.
    env_origin: BTreeMap<String, String>,
}

impl Layers {
    /// Parses the file and lays the environment over it.
    pub(super) fn read(
        file: Option<&FileText>,
        env: &[(String, String)],
        problems: &mut Problems,
    ) -> Layers {
        let mut layers = Layers::default();
        if let Some(file) = file {
            layers.file_name = Some(file.name.clone());
            match file.text.parse::<Table>() {
                Ok(table) => layers.table = table,
                Err(error) => {
                    // Not the error's own text: it quotes the line, which may hold a secret.
                    let at = error.span().map_or(0, |span| span.start);
                    let line = file.text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1;
                    let message = format!("line {line} is not TOML: {}", error.message());
                    problems.add_from("", Some(file.name.clone()), message);
                }
            }
        }
        for (name, text) in env {
            if let Some(rest) = name.strip_prefix(ENV_PREFIX) {
                layers.overlay(name, rest, text, problems);
            }
        }
        layers
    }

    /// All of it, as it stands there.
    pub(super) fn into_table(self) -> Table {
        self.table
    }

    /// Where the value at `path` came from.
    pub(super) fn origin(&self, path: &str) -> Option<String> {
        self.env_origin.get(path).or(self.file_name.as_ref()).cloned()
    }

    /// Reads into [`File`]: a field that does not fit is reported, taken out, and reading starts
    /// again.
    pub(super) fn typed(&self, problems: &mut Problems) -> File {
        let mut root = Value::Table(self.table.clone());
        for _ in 0..PROBLEM_COUNT_MAX {
            let error = match serde_path_to_error::deserialize(root.clone()) {
                Ok(file) => return file,
                Err(error) => error,
            };
            let steps: Vec<Step> = error.path().iter().filter_map(Step::of).collect();
            let path = error.path().to_string();
            let message = error.inner().message().trim().to_owned();
            let origin = self.origin(&path);
            // A second look at the same place is an echo of the repair below, not news.
            if problems.0.last().is_none_or(|last| last.path != path) {
                problems.add_from(&path, origin, message);
            }
            remove(&mut root, &steps);
        }
        File::default()
    }

    fn overlay(&mut self, name: &str, rest: &str, text: &str, problems: &mut Problems) {
        let steps: Vec<Step> = rest.split("__").map(Step::of_env).collect();
        let mut path = String::new();
        for step in &steps {
            match step {
                Step::Key(key) if path.is_empty() => path.push_str(key),
                Step::Key(key) => path.extend([".", key]),
                Step::Index(index) => path.push_str(&format!("[{index}]")),
            }
        }
        if place(&mut self.table, &steps, env_value(text)) {
            self.env_origin.insert(path, name.to_owned());
        } else {
            problems.add_from(&path, Some(name.to_owned()), "no field can stand at this name");
        }
    }
}

enum Step {
    Key(String),
    Index(usize),
}

impl Step {
    fn of(segment: &Segment) -> Option<Step> {
        match segment {
            Segment::Map { key } => Some(Step::Key(key.clone())),
            Segment::Seq { index } => Some(Step::Index(*index)),
            Segment::Enum { .. } | Segment::Unknown => None,
        }
    }

    fn of_env(part: &str) -> Step {
        part.parse().map_or_else(|_| Step::Key(part.to_ascii_lowercase()), Step::Index)
    }
}

/// Integers, booleans, quoted texts and lists as in TOML; anything else is a text.
fn env_value(text: &str) -> Value {
    match format!("v = {text}").parse::<Table>() {
        Ok(mut table) => match table.remove("v") {
            Some(Value::Datetime(_) | Value::Float(_)) | None => Value::String(text.to_owned()),
            Some(value) => value,
        },
        Err(_) => Value::String(text.to_owned()),
    }
}

fn place(table: &mut Table, steps: &[Step], value: Value) -> bool {
    let Some((Step::Key(key), rest)) = steps.split_first() else { return false };
    if key.is_empty() {
        return false;
    }
    let Some((next, deeper)) = rest.split_first() else {
        table.insert(key.clone(), value);
        return true;
    };
    match next {
        Step::Key(_) => {
            let slot = table.entry(key.clone()).or_insert_with(|| Value::Table(Table::new()));
            slot.as_table_mut().is_some_and(|table| place(table, rest, value))
        }
        Step::Index(index) if *index <= ENV_INDEX_MAX => {
            let slot = table.entry(key.clone()).or_insert_with(|| Value::Array(Vec::new()));
            let Some(list) = slot.as_array_mut() else { return false };
            while list.len() <= *index {
                list.push(Value::Table(Table::new()));
            }
            list[*index].as_table_mut().is_some_and(|table| place(table, deeper, value))
        }
        Step::Index(_) => false,
    }
}

/// Takes the field at `steps` out; a path that names nothing empties the last place that exists, so
/// that reading always ends.
fn remove(value: &mut Value, steps: &[Step]) {
    let Some((step, deeper)) = steps.split_first() else {
        *value = Value::Table(Table::new());
        return;
    };
    match (&mut *value, step) {
        (Value::Table(table), Step::Key(key)) if deeper.is_empty() => drop(table.remove(key)),
        (Value::Table(table), Step::Key(key)) if table.contains_key(key) => {
            remove(&mut table[key], deeper);
        }
        // A wrong entry becomes an empty table first, so that later entries keep their index.
        (Value::Array(list), Step::Index(index)) if *index < list.len() => {
            let empty = list[*index].as_table().is_some_and(Table::is_empty);
            if deeper.is_empty() && empty {
                list.remove(*index);
            } else {
                remove(&mut list[*index], deeper);
            }
        }
        _ => *value = Value::Table(Table::new()),
    }
}
