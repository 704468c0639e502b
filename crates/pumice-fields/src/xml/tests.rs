use std::time::{Duration, Instant};

use pumice::{ErrorBound, Preset, Result};

use crate::{Chunks, Rules, Treatment};

fn rules(text: &str) -> Result<Rules> {
    Rules::parse(text, Treatment::new(Vec::new()))
}

fn treatment(rules: &Rules, name: &str) -> Treatment {
    rules.treatment(name, false).unwrap_or_else(|| panic!("nothing is said about {name}")).clone()
}

fn bound(rules: &Rules, name: &str) -> ErrorBound {
    treatment(rules, name).bounds[0]
}

#[test]
fn the_example_of_the_survey() {
    let rules = rules(
        r#"<file id="x" compression_type="lossy"
             error_bound_mode="abs" error_bound="0.001">
             <field field_ref="t" error_bound_mode="rel"
               error_bound="0.1" />
             <field field_ref="q" error_bound="0.00001" />
             <field field_ref="cc" compression_type="lossless"
               compression_level="4" />
           </file >"#,
    )
    .unwrap();
    assert_eq!(treatment(&rules, "t"), Treatment::new(vec![ErrorBound::Rel(0.1)]));
    assert_eq!(treatment(&rules, "q"), Treatment::new(vec![ErrorBound::Abs(0.00001)]));
    let lossless = Treatment { preset: Preset::Balanced, ..Treatment::new(vec![ErrorBound::Lossless]) };
    assert_eq!(treatment(&rules, "cc"), lossless);
    assert_eq!((rules.treatment("x", false), rules.notes.len()), (None, 0));
}

#[test]
fn inheritance_is_that_of_xios() {
    let rules = rules(include_str!("../../../../docs/examples/fields.xml")).unwrap();
    // Itself, groups, the field it refers to, the file.
    assert_eq!(bound(&rules, "t"), ErrorBound::Abs(0.01));
    assert_eq!(bound(&rules, "ta"), ErrorBound::Abs(0.01));
    assert_eq!(bound(&rules, "q"), ErrorBound::PwRel(0.01));
    assert_eq!(treatment(&rules, "q").preset, Preset::Fast);
    assert_eq!(bound(&rules, "u"), ErrorBound::Rel(0.001));
    assert_eq!(bound(&rules, "cc"), ErrorBound::Lossless);
    assert!(treatment(&rules, "mask").bounds.is_empty());
    assert_eq!(rules.treatment("unwritten", false), None);
}

#[test]
fn names_attributes_and_levels() {
    let rules = rules(
        "\u{feff}<?xml version='1.0'?><!-- don't --><simulation><context id='a'><axis_definition><axis id='l' n_glo='3'/>
           </axis_definition><file_definition type='one_file' output_freq='1d'>
           <file_group compression_type='SZ' error_bound='1e-2'><file name='f' enabled='.TRUE.'>
             <variable name='v' type='string'>text</variable>
             <field id='a' operation='average' unit='K' long_name='&lt;a&gt; &#38; b'>@a * 2</field>
             <field id='b' name='bee' compression_level='2' chunks='1, 20,30' default_value='-99'/>
             <field id='c' compression_type='max'/>
             <field id='d' compression_type='gzip'/><field id='e' compression_type='gzip'/>
             <field id='f' compression_type='none'/>
             <field_group error_bound_mode='PW_REL'><field_group error_bound='0.5'><field id='g'/></field_group></field_group>
             <field id='off' enabled='.false.' error_bound='5'/>
           </file><file enabled='false'><field id='a' error_bound='3'/></file></file_group>
           <file><field id='h' compression_level='9'/><field id='i' compression_level='0'/><field id='j'/></file>
           </file_definition></context></simulation>",
    )
    .unwrap();
    assert_eq!(treatment(&rules, "a"), Treatment::new(vec![ErrorBound::Abs(0.01)]));
    let b = treatment(&rules, "bee");
    assert_eq!((b.preset, b.chunks, b.fills), (Preset::Small, Some(Chunks::Extents(vec![1, 20, 30])), vec![-99.0]));
    assert_eq!(treatment(&rules, "b").fills, [-99.0]);
    assert_eq!(treatment(&rules, "c").preset, Preset::Max);
    assert_eq!(bound(&rules, "d"), ErrorBound::Lossless);
    assert!(treatment(&rules, "f").bounds.is_empty());
    assert_eq!(bound(&rules, "g"), ErrorBound::PwRel(0.5));
    assert_eq!((rules.treatment("off", false), rules.treatment("j", false)), (None, None));
    assert_eq!((bound(&rules, "h"), treatment(&rules, "h").preset), (ErrorBound::Lossless, Preset::Max));
    assert!(treatment(&rules, "i").bounds.is_empty());
    // Each once.
    assert_eq!(rules.notes.len(), 2, "{:?}", rules.notes);
    let names: Vec<_> = rules.exact_names().map(|exact| (exact.name(), exact.is_optional)).collect();
    assert!(names.contains(&("bee", true)) && !names.contains(&("b", true)), "{names:?}");
    assert!(rules.exact_names().any(|exact| exact.name() == "bee" && exact.matches("b")));
}

#[test]
fn an_alias_of_two_fields_stands_for_neither() {
    let rules = rules(
        "<file error_bound='1'><field field_ref='t' name='t_mean'/><field field_ref='t' name='t_max' error_bound='2'/>
         <field field_ref='q' name='q_mean'/><field field_ref='q' name='q_max'/></file>",
    )
    .unwrap();
    assert_eq!((bound(&rules, "t_mean"), bound(&rules, "t_max")), (ErrorBound::Abs(1.0), ErrorBound::Abs(2.0)));
    assert_eq!(rules.treatment("t", false), None);
    assert_eq!(bound(&rules, "q"), ErrorBound::Abs(1.0));
}

#[test]
fn messages_name_mistake_line_and_column() {
    let field = |attributes: &str| format!("<file>\n <field id='a' {attributes}/>\n</file>");
    for (attributes, place, expected) in [
        ("error_bound='x'", "line 2, column 16", "must be a number"),
        ("error_bound='-1'", "line 2, column 16", "an absolute bound of -1 is not valid"),
        ("error_bound='inf'", "line 2, column 16", "is not valid"),
        ("error_bound='nan'", "line 2, column 16", "is not valid"),
        ("unit='K' eror_bound='1'", "line 2, column 25", "eror_bound is unknown; known: compression_type"),
        ("compresion_type='lossy'", "line 2", "compresion_type is unknown"),
        ("error_bound='1' error_bound='2'", "line 2, column 32", "given twice"),
        ("error_bound_mode='abs_and_rel' error_bound='1'", "line 2", "give both as abs and rel in TOML"),
        ("error_bound_mode='max'", "line 2", "unknown; known: abs, rel, pw_rel"),
        ("error_bound_mode='abs'", "line 2", "needs an error_bound"),
        ("compression_type='lossy'", "line 2, column 2", "needs an error_bound"),
        ("compression_type='zfp' error_bound='1'", "line 2", "'zfp' is unknown; known: lossy, lossless, none, fast"),
        ("compression_level='10'", "line 2", "from 0 to 9, not '10'"),
        ("compression_level='4.5'", "line 2", "from 0 to 9"),
        ("compression_level='0' error_bound='1'", "line 2", "level 0 is no compression"),
        ("error_bound_mode='ratio' error_bound='0.5'", "line 2", "a ratio of 0.5 is not valid"),
        ("chunks='1,0'", "line 2", "chunks must be extents"),
        ("default_value='none'", "line 2", "default_value must be a number"),
        ("group_ref='g'", "line 2", "groups are not copied"),
        ("id='b'", "line 2", "given twice"),
        ("error_bound='&bomb;'", "line 2", ""),
        ("error_bound=1", "line 2", ""),
    ] {
        let message = rules(&field(attributes)).unwrap_err().to_string();
        assert!(message.starts_with(place) && message.contains(expected), "{attributes}: {message}");
    }
    for (text, expected) in [
        ("<", ""),
        ("<file>", "line 1, column 1: this element is not closed"),
        ("<file></field>", "line 1"),
        ("<file/><file/>", "one element must contain all others"),
        ("<file><feild/></file>", "<feild> is unknown here"),
        ("<file_definition><field id='a'/></file_definition>", "<field> is unknown here: files have"),
        ("<field id='a'/>", "belongs into a <file>"),
        ("<file><field error_bound='1'/></file>", "the field has no name"),
        ("<file><field id='a*' error_bound='1'/></file>", "no name of a field"),
        ("<simulation/>", "no <field> in a <file>"),
        ("<field_definition><field id='a' error_bound='1'/></field_definition>", "no <field> in a <file>"),
        ("<context src='./context_nemo.xml'/>", "other files are not read: give './context_nemo.xml' itself"),
        ("<context error_bound='1'/>", "belongs to a file"),
        ("<!DOCTYPE a [<!ENTITY b 'c'>]><file/>", "document types are not read"),
        (
            "<file>\n<field id='a' error_bound='1'/>\n<field id='a' error_bound='2'/></file>",
            "line 3, column 1: the field a has other parameters at line 2, column 1",
        ),
        (
            "<context><field_definition><field id='a' field_ref='b'/><field id='b' field_ref='a'/></field_definition>
             <file><field field_ref='a' error_bound='1'/></file></context>",
            "or in a circle",
        ),
    ] {
        let message = rules(text).unwrap_err().to_string();
        assert!(message.starts_with("line ") && message.contains(expected), "{text}: {message}");
    }
}

#[test]
fn truncated_and_damaged_texts_are_errors_or_rules() {
    let text = include_str!("../../../../docs/examples/fields.xml");
    assert!(rules(text).is_ok());
    for end in 0..text.trim_end().len() {
        if text.is_char_boundary(end) && text[..end].trim_start().starts_with('<') {
            assert!(rules(&text[..end]).is_err(), "{end} bytes are a configuration");
        }
    }
    // Every byte replaced by others: no panic, whatever the result.
    for at in 0..text.len() {
        for byte in *b"<>/='\"&;! a0\0" {
            let mut bytes = text.as_bytes().to_vec();
            bytes[at] = byte;
            if let Ok(damaged) = String::from_utf8(bytes) {
                let _ = rules(&damaged);
            }
        }
    }
}

#[test]
fn large_texts_take_little_time() {
    let n = 1 << 19;
    let nested = "<file_group>".repeat(n);
    let attributes: String = (0..n).map(|i| format!(" a{i}=''")).collect();
    let fields: String =
        (0..n / 8).map(|i| format!("<field id='f{i}' field_ref='f{}' error_bound='1'/>", i + 1)).collect();
    let namespaces: String = (0..n / 8).map(|i| format!("<field xmlns:a{i}='b{i}'/>")).collect();
    let entities = "&amp;".repeat(n);
    for (text, expected) in [
        (nested, Some("nested deeper than 64")),
        (format!("<file{attributes}/>"), Some("no <field>")),
        (format!("<file><field id='{}'/></file>", "x".repeat(n)), Some("has more than 256 bytes")),
        (format!("<file><field error_bound='{}'/></file>", "9".repeat(n)), Some("has more than 256 bytes")),
        (format!("<file><field id='a' error_bound='1' comment='{entities}'>{entities}</field></file>"), None),
        (format!("<file>{fields}</file>"), Some("refer to one another")),
        (format!("<file>{namespaces}</file>"), Some("has no name")),
        (format!("<!--{}", "-".repeat(n)), Some("")),
        (format!("<file><![CDATA[{}", "]".repeat(n)), Some("")),
    ] {
        let start = Instant::now();
        let result = rules(&text);
        assert!(start.elapsed() < Duration::from_secs(20), "{}: {:?}", &text[..40], start.elapsed());
        match expected {
            None => assert!(result.is_ok()),
            Some(words) => {
                let message = result.unwrap_err().to_string();
                assert!(message.contains(words), "{}: {message}", &text[..40]);
            }
        }
    }
}
