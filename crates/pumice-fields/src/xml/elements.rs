//! The elements of the text: a list of its fields.
//!
//! Only what bears on fields is kept. Other elements of XIOS (grids, axes, variables) are skipped with all that is in them;
//! inside of files and groups, where a misspelt name would go unnoticed otherwise, unknown ones are errors. No entity is
//! expanded but the five of XML, and nesting is limited, so memory stays in proportion to the text.

use pumice::Result;
use quick_xml::events::{BytesStart, Event};
use quick_xml::{Reader, XmlVersion};

use super::Text;
use super::settings::Settings;

/// Elements inside of elements.
const MAX_DEPTH: usize = 64;
/// The most bytes of a value that is kept.
const MAX_VALUE: usize = 256;

/// A value and where it is.
pub(super) type At = (String, usize);

/// A `<field>`.
pub(super) struct Field {
    pub(super) id: Option<At>,
    pub(super) name: Option<At>,
    pub(super) field_ref: Option<At>,
    /// Its own, and those of the groups around it.
    pub(super) settings: Settings,
    /// Those of the file that it is in, if it is in one.
    pub(super) file: Option<Settings>,
    pub(super) at: usize,
}

/// What an element is, as far as it matters what may be in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// `<simulation>`, `<context>` and the like.
    Outer,
    /// `<file_definition>`, `<file_group>`.
    Files,
    File,
    /// `<field_definition>`, `<field_group>`.
    Fields,
    Field,
    Skipped,
}

/// An element that is not closed yet.
struct Open {
    kind: Kind,
    settings: Settings,
    /// Inside of a file: what that says.
    file: Option<Settings>,
    at: usize,
}

/// The fields of a text, in its order.
pub(super) fn read(text: Text<'_>) -> Result<Vec<Field>> {
    let mut reader = Reader::from_str(text.0);
    reader.config_mut().expand_empty_elements = true;
    let mut open: Vec<Open> = Vec::new();
    let mut fields = Vec::new();
    let mut has_root = false;
    loop {
        let at = reader.buffer_position() as usize;
        let event = reader.read_event().map_err(|e| text.error(reader.error_position() as usize, e))?;
        match event {
            Event::Start(element) => {
                if open.is_empty() && has_root {
                    return Err(text.error(at, "one element must contain all others"));
                }
                has_root = true;
                if open.len() == MAX_DEPTH {
                    return Err(text.error(at, format!("elements are nested deeper than {MAX_DEPTH}")));
                }
                let opened = enter(text, &element, open.last(), at, &mut fields)?;
                open.push(opened);
            }
            // The reader compares the names.
            Event::End(_) => _ = open.pop(),
            Event::DocType(_) => {
                return Err(text.error(at, "document types are not read: leave the line with DOCTYPE out"));
            }
            Event::Eof => break,
            _ => {}
        }
    }
    match open.last() {
        Some(last) => Err(text.error(last.at, "this element is not closed")),
        None if !has_root => Err(text.error(0, "there is no element")),
        None => Ok(fields),
    }
}

/// What is known inside of an element.
fn enter(
    text: Text<'_>,
    element: &BytesStart<'_>,
    parent: Option<&Open>,
    at: usize,
    fields: &mut Vec<Field>,
) -> Result<Open> {
    let name = element.name();
    let name: &str = name.as_ref();
    let outer = parent.map_or(Kind::Outer, |parent| parent.kind);
    let mut kind = kind_of(name, outer).map_err(|message| text.error(at, message))?;
    let skipped = || Open { kind: Kind::Skipped, settings: Settings::default(), file: None, at };
    if kind == Kind::Skipped {
        return Ok(skipped());
    }
    let mut own = Attributes::read(text, element, kind)?;
    if !own.is_enabled {
        kind = Kind::Skipped;
    }
    let inherited = parent.map(|parent| &parent.settings);
    let settings = |own: Settings| match inherited {
        Some(inherited) => own.or(inherited),
        None => own,
    };
    let file = parent.and_then(|parent| parent.file.clone());
    Ok(match kind {
        Kind::Skipped => skipped(),
        Kind::Outer => Open { kind, settings: Settings::default(), file: None, at },
        // What a file says comes after all else, so groups in it begin anew.
        Kind::File => Open { kind, settings: Settings::default(), file: Some(settings(own.settings)), at },
        Kind::Files | Kind::Fields => Open { kind, settings: settings(own.settings), file, at },
        Kind::Field => {
            let settings = settings(std::mem::take(&mut own.settings));
            fields.push(Field { id: own.id, name: own.name, field_ref: own.field_ref, settings, file, at });
            Open { kind, settings: Settings::default(), file: None, at }
        }
    })
}

fn kind_of(name: &str, outer: Kind) -> std::result::Result<Kind, String> {
    let kind = match (outer, name) {
        (Kind::Skipped, _) => Kind::Skipped,
        (Kind::Outer | Kind::Files, "file") => Kind::File,
        (Kind::Outer, "file_definition" | "file_group") | (Kind::Files, "file_group") => Kind::Files,
        (Kind::Outer, "field_definition" | "field_group") | (Kind::Fields | Kind::File, "field_group") => Kind::Fields,
        (Kind::Fields | Kind::File, "field") => Kind::Field,
        (Kind::Outer, "simulation" | "context" | "root" | "xios") => Kind::Outer,
        (Kind::Outer, "field") => return Err("a <field> belongs into a <file> or a <field_definition>".into()),
        (Kind::Outer, _) | (_, "variable" | "variable_group") => Kind::Skipped,
        (Kind::Files, _) => return Err(format!("<{name}> is unknown here: files have <file_group> and <file>")),
        (Kind::Field, _) => return Err(format!("<{name}> is unknown in a <field>")),
        (Kind::File | Kind::Fields, _) => {
            return Err(format!("<{name}> is unknown here: fields are listed as <field> or <field_group>"));
        }
    };
    Ok(kind)
}

/// The attributes of an element, as far as they matter.
struct Attributes {
    id: Option<At>,
    name: Option<At>,
    field_ref: Option<At>,
    settings: Settings,
    is_enabled: bool,
}

impl Attributes {
    fn read(text: Text<'_>, element: &BytesStart<'_>, kind: Kind) -> Result<Self> {
        let mut own =
            Attributes { id: None, name: None, field_ref: None, settings: Settings::default(), is_enabled: true };
        // Of those that are kept, the second of a name is found below; to look for others takes time in proportion to the
        // square of their number.
        for attribute in element.attributes().with_checks(false) {
            let attribute = attribute.map_err(|e| text.error(position(text, element), e))?;
            let key: &str = attribute.key.as_ref();
            let at = position(text, key);
            let is_kept = matches!(key, "id" | "name" | "field_ref" | "enabled" | "src" | "group_ref");
            if !is_kept && !Settings::concerns(key) {
                continue;
            }
            let value = attribute.normalized_value(XmlVersion::Implicit1_0).map_err(|e| text.error(at, e))?;
            if value.len() > MAX_VALUE {
                return Err(text.error(at, format!("the value of {key} has more than {MAX_VALUE} bytes")));
            }
            let slot = match key {
                "id" => &mut own.id,
                "name" => &mut own.name,
                "field_ref" => &mut own.field_ref,
                "enabled" => {
                    let word = value.trim_matches('.').to_ascii_lowercase();
                    own.is_enabled = !matches!(word.as_str(), "false" | "f" | "0");
                    continue;
                }
                "src" => return Err(text.error(at, format!("other files are not read: give '{value}' itself"))),
                "group_ref" => return Err(text.error(at, "groups are not copied: list the fields of the group here")),
                _ if kind == Kind::Outer => {
                    return Err(text.error(at, format!("{key} belongs to a file, a group or a field")));
                }
                _ => {
                    own.settings.set(key, &value, at).map_err(|message| text.error(at, message))?;
                    continue;
                }
            };
            if slot.is_some() {
                return Err(text.error(at, format!("{key} is given twice")));
            }
            *slot = Some((value.into_owned(), at));
        }
        // An empty name is none.
        for slot in [&mut own.id, &mut own.name, &mut own.field_ref] {
            *slot = slot.take().filter(|(value, _)| !value.is_empty());
        }
        Ok(own)
    }
}

/// Where a part of the text begins.
fn position(text: Text<'_>, part: &str) -> usize {
    (part.as_ptr() as usize).wrapping_sub(text.0.as_ptr() as usize)
}
