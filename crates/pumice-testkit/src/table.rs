//! The little of TOML that golden tables need: sections of `key = "text"` or `key = value`, in order.

use std::collections::BTreeMap;
use std::fmt::Write;

/// Sections by name, each with its keys.
pub(crate) type Table = BTreeMap<String, BTreeMap<String, String>>;

/// Reads a table; panics on a line that is none of ours.
pub(crate) fn parse(text: &str) -> Table {
    let mut table = Table::new();
    let mut section = String::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name.to_owned();
            table.entry(section.clone()).or_default();
        } else {
            let (key, value) = line.split_once(" = ").unwrap_or_else(|| panic!("no key and value: {line}"));
            let value = value.trim_matches('"').to_owned();
            table.entry(section.clone()).or_default().insert(key.to_owned(), value);
        }
    }
    table
}

/// One section as text; numbers and lists stay bare, all else is quoted.
pub(crate) fn section<'a>(name: &str, entries: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let mut text = format!("[{name}]\n");
    for (key, value) in entries {
        let bare = value.starts_with('[') || value.parse::<u64>().is_ok();
        let quote = if bare { "" } else { "\"" };
        writeln!(text, "{key} = {quote}{value}{quote}").expect("text has room");
    }
    text
}

/// The text of a table without one of its sections and the empty line before it.
pub(crate) fn without(text: &str, name: &str) -> String {
    let head = format!("\n[{name}]\n");
    let Some(start) = text.find(&head) else { return text.to_owned() };
    let end = text[start + head.len()..].find("\n[").map_or(text.len(), |n| start + head.len() + n);
    text[..start].to_owned() + &text[end..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        let text = section("a_b", [("seed", "7".into()), ("shape", "[3, 4]".into()), ("config", "abs 1e-3".into())]);
        assert_eq!(text, "[a_b]\nseed = 7\nshape = [3, 4]\nconfig = \"abs 1e-3\"\n");
        let table = parse(&format!("# comment\n\n{text}"));
        assert_eq!(table["a_b"]["config"], "abs 1e-3");
        assert_eq!(table["a_b"]["shape"], "[3, 4]");
    }

    #[test]
    fn sections_can_be_taken_out() {
        let [a, b, c] = ["a", "b", "c"].map(|name| "\n".to_owned() + &section(name, [("seed", "7".into())]));
        let all = format!("# comment\n{a}{b}{c}");
        assert_eq!(without(&all, "a"), format!("# comment\n{b}{c}"));
        assert_eq!(without(&all, "b"), format!("# comment\n{a}{c}"));
        assert_eq!(without(&all, "c"), format!("# comment\n{a}{b}"));
        assert_eq!(without(&all, "d"), all);
    }
}
