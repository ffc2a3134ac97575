//! Metrics of replicas that are not read any more. The exporter keeps every series for good, so
//! their lines are left out where the text is made. A replica that comes back goes on where it was.

use super::label;

/// The text without the series of replicas that `is_there` does not know.
pub fn without_others(text: String, is_there: impl Fn(&str) -> bool) -> String {
    let start = format!("{}=\"", label::REPLICA);
    let gone = |line: &str| replica(line, &start).is_some_and(|key| !is_there(key));
    if !text.lines().any(gone) {
        return text;
    }
    text.split_inclusive('\n').filter(|line| !gone(line)).collect()
}

/// The replica a line is of. Keys have neither quotes nor backslashes, so none is escaped.
fn replica<'a>(line: &'a str, start: &str) -> Option<&'a str> {
    let (_, labels) = line.split_once('{')?;
    let at = labels.match_indices(start).map(|(at, _)| at).find(|at| {
        // Not the end of another label's name.
        *at == 0 || labels.as_bytes().get(at - 1) == Some(&b',')
    })?;
    labels.get(at + start.len()..)?.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_replicas_that_are_gone_are_left_out() {
        let text = "# TYPE a counter\n\
                    a{replica=\"m.x.0\"} 1\n\
                    a{fact=\"f\",replica=\"m.y.0\"} 2\n\
                    a{other_replica=\"m.y.0\"} 3\n\
                    b 4\n";
        let kept = without_others(text.to_owned(), |key| key == "m.x.0");
        assert_eq!(kept, text.replace("a{fact=\"f\",replica=\"m.y.0\"} 2\n", ""));
        assert_eq!(without_others(text.to_owned(), |_| true), text);
    }
}
