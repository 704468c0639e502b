//! `cargo xtask architecture`: docs/architecture.md and the tree say the same.
//!
//! The tables of the page name every module of `crates/pumice`, every folder of its `codec/` and every crate and folder
//! of the repository. Each module, and each folder of `codec/`, uses only those of earlier rows: so there are no cycles,
//! and none can come back unnoticed.

use std::fs;
use std::path::{Path, PathBuf};

use crate::shell::{Result, read, root};

const PAGE: &str = "docs/architecture.md";
const SOURCE: &str = "crates/pumice/src";
/// Folders of the repository that the page need not name.
const UNNAMED: [&str; 2] = ["crates", "target"];

/// Compares the page with the tree.
pub(crate) fn check() -> Result {
    let page = read(&root().join(PAGE))?;
    let modules = first_column(&page, "module")?;
    same("modules of crates/pumice", &modules, &entries(&root().join(SOURCE), is_module)?)?;
    let rooms = first_column(&page, "folder of `codec/`")?;
    same("folders of codec/", &rooms, &entries(&root().join(SOURCE).join("codec"), |_, is_folder| is_folder)?)?;
    let folders = first_column(&page, "folder")?;
    same("crates and folders", &folders, &repository_folders()?)?;
    let mut wrong = later_uses(&modules, Path::new(SOURCE), &["crate::"])?;
    // Folders of codec/ reach each other by either path.
    wrong.extend(later_uses(&rooms, &Path::new(SOURCE).join("codec"), &["codec::", "super::"])?);
    if !wrong.is_empty() {
        wrong.sort();
        wrong.dedup();
        return Err(format!("modules use modules of later rows of {PAGE}:\n  {}", wrong.join("\n  ")));
    }
    println!(
        "{} modules, {} folders of codec/ and {} crates and folders as in {PAGE}; no module uses one of a later row",
        modules.len(),
        rooms.len(),
        folders.len()
    );
    Ok(())
}

/// The uses of modules of later rows, in the files of all modules of a folder.
fn later_uses(modules: &[String], folder: &Path, prefixes: &[&str]) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for (row, module) in modules.iter().enumerate() {
        for path in files_of(&root().join(folder).join(module))? {
            let text = read(&path)?;
            for used in uses(&text, prefixes) {
                if modules[row + 1..].iter().any(|later| name(later) == used) {
                    let path = path.strip_prefix(root()).unwrap_or(&path).display();
                    wrong.push(format!("{path} uses `{used}`, which comes after `{}`", name(module)));
                }
            }
        }
    }
    Ok(wrong)
}

/// The modules that a file uses by prefixes such as `crate::`, apart from its unit tests and comments.
fn uses<'a>(text: &'a str, prefixes: &[&str]) -> Vec<&'a str> {
    let code = text.split("\nmod tests").next().unwrap_or(text);
    let lines = code.lines().map(|line| line.split("//").next().unwrap_or(line));
    let after = lines.flat_map(|line| prefixes.iter().flat_map(|prefix| line.split(*prefix).skip(1)));
    after.map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or(rest)).collect()
}

/// `exec` for `exec/`, `error` for `error.rs`.
fn name(entry: &str) -> &str {
    entry.trim_end_matches('/').trim_end_matches(".rs")
}

/// The code in the first column of the table whose head starts with `title`.
fn first_column(page: &str, title: &str) -> Result<Vec<String>> {
    let head = format!("| {title} |");
    let rows = page.lines().skip_while(|line| !line.starts_with(&head)).skip(2);
    let cells = rows.take_while(|line| line.starts_with('|'));
    let found: Vec<String> =
        cells.filter_map(|line| line.split('`').nth(1).map(|cell| cell.trim_end_matches('/').to_owned())).collect();
    if found.is_empty() { Err(format!("{PAGE} has no table with the head `{head}`")) } else { Ok(found) }
}

fn same(what: &str, named: &[String], there: &[String]) -> Result {
    let missing = |from: &[String], of: &[String]| -> Vec<String> {
        of.iter().filter(|entry| !from.contains(entry)).cloned().collect()
    };
    let (unnamed, gone) = (missing(named, there), missing(there, named));
    if unnamed.is_empty() && gone.is_empty() {
        return Ok(());
    }
    Err(format!("{PAGE}: of the {what}, the page does not name {unnamed:?}, and the tree does not have {gone:?}"))
}

fn is_module(name: &str, is_folder: bool) -> bool {
    is_folder || (name.ends_with(".rs") && !["lib.rs", "tests.rs"].contains(&name))
}

/// Names in a folder, without those that begin with a dot.
fn entries(folder: &Path, wanted: impl Fn(&str, bool) -> bool) -> Result<Vec<String>> {
    let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let (name, is_folder) = (entry.file_name().to_string_lossy().into_owned(), entry.path().is_dir());
        if !name.starts_with('.') && wanted(&name, is_folder) {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

fn repository_folders() -> Result<Vec<String>> {
    let tracked =
        |name: &str| crate::shell::succeeds(crate::shell::command("git").args(["ls-files", "--error-unmatch", name]));
    let mut all = entries(root(), |name, is_folder| is_folder && !UNNAMED.contains(&name) && tracked(name))?;
    all.extend(entries(&root().join("crates"), |_, is_folder| is_folder)?.iter().map(|name| format!("crates/{name}")));
    all.sort();
    Ok(all)
}

/// All source files of a module.
fn files_of(module: &Path) -> Result<Vec<PathBuf>> {
    if module.is_file() {
        return Ok(vec![module.to_owned()]);
    }
    let mut files = Vec::new();
    let mut folders = vec![module.to_owned()];
    while let Some(folder) = folders.pop() {
        for name in entries(&folder, is_module)? {
            let path = folder.join(name);
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_and_the_tree_agree() {
        check().unwrap();
    }

    #[test]
    fn uses_are_found() {
        let text = "use crate::io::{self, Bytes}; // crate::compress\nlet x = crate::grid::rows();\n#[cfg(test)]\nmod tests {\n    use crate::backend;\n}\n";
        assert_eq!(uses(text, &["crate::"]), ["io", "grid"]);
        assert_eq!(uses("use super::fast;\nuse crate::codec::small::fit;", &["codec::", "super::"]), ["fast", "small"]);
    }

    #[test]
    fn differences_are_named() {
        let of = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let message = same("parts", &of(&["a", "b"]), &of(&["b", "c"])).unwrap_err();
        assert!(message.contains("[\"c\"]") && message.contains("[\"a\"]"), "{message}");
        assert!(first_column("| module | holds |\n|---|---|\n| `x/` | y |\n\n", "module").unwrap() == ["x"]);
        assert!(first_column("text", "module").is_err());
    }
}
