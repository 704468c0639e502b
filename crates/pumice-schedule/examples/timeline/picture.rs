//! The expected and the real schedule of one snapshot, one above the other.

use std::fmt::Write;

use pumice_schedule::schedule::Span;
use pumice_schedule::trace::{Activity, Event, Lane};

const WIDTH: f64 = 800.0;
const LEFT: f64 = 96.0;
const RIGHT: f64 = 792.0;
const BAR: f64 = 30.0;
const TEXT: &str = "#1f2328";
const FAINT: &str = "#59636e";
const GRID: &str = "#d1d9e0";
const BUSY: &str = "#c8ced6";
const COPY: &str = "#bc4c00";
const SCAN: &str = "#8250df";
/// One for each field, of different lightness.
const FIELDS: [&str; 3] = ["#0a3069", "#0969da", "#80ccff"];

fn colour(activity: &Activity) -> Option<&'static str> {
    match activity {
        Activity::Busy => Some(BUSY),
        Activity::Capture { .. } | Activity::Wait => Some(COPY),
        Activity::Scan { .. } => Some(SCAN),
        Activity::Compress { field, .. } | Activity::Write { field, .. } => Some(FIELDS[field % FIELDS.len()]),
        _ => None,
    }
}

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, size: u32, fill: &str, words: &str) {
    let weight = if fill == TEXT { 600 } else { 400 };
    let _ = writeln!(
        svg,
        r#"<text x="{x:.1}" y="{y:.1}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" fill="{fill}">{words}</text>"#
    );
}

/// Draws the events of this window.
pub(crate) fn draw(expected: &[Event], found: &[Event], window: Span, fields: &[&str], about: &str) -> String {
    let height = 300.0;
    let x = |time: f64| LEFT + (time - window.start) / window.seconds() * (RIGHT - LEFT);
    let mut svg = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"
     font-family="-apple-system, 'Segoe UI', 'Noto Sans', Helvetica, Arial, sans-serif" role="img">
<title>Expected and real schedule of a snapshot that is compressed and written in idle times</title>
<!-- Written by crates/pumice-schedule/examples/timeline. -->
<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>
"##
    );
    text(&mut svg, (8.0, 20.0), "start", 13, FAINT, about);
    let step =
        [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0].into_iter().find(|step| window.seconds() / step <= 9.0).unwrap_or(2.0);
    let n_ticks = (window.seconds() / step) as usize;
    for tick in 0..=n_ticks {
        let at = x(window.start + tick as f64 * step);
        let _ = writeln!(svg, r#"<path d="M{at:.1} 42V250" stroke="{GRID}"/>"#);
        let unit = if tick == n_ticks { " ms" } else { "" };
        text(&mut svg, (at, 266.0), "middle", 12, FAINT, &format!("{:.0}{unit}", 1e3 * tick as f64 * step));
    }
    for (top, name, events) in [(42.0, "Expected", expected), (150.0, "Real", found)] {
        text(&mut svg, (8.0, top + 14.0), "start", 14, TEXT, name);
        for (lane, label, y) in [(Lane::Compute, "compute", top + 22.0), (Lane::Background, "background", top + 60.0)] {
            text(&mut svg, (LEFT - 8.0, y + 20.0), "end", 12, FAINT, label);
            let mut of_lane: Vec<&Event> = events.iter().filter(|event| event.lane == lane).collect();
            // A copy is in the middle of the application's work.
            of_lane.sort_by_key(|event| event.activity != Activity::Busy);
            for event in of_lane {
                let Some(fill) = colour(&event.activity) else { continue };
                let (from, to) = (x(event.span.start.max(window.start)), x(event.span.end.min(window.end)));
                if to <= from {
                    continue;
                }
                // A line between tasks.
                let line = if event.activity == Activity::Busy { "none" } else { "#ffffff" };
                let width = (to - from).max(0.6);
                let _ = writeln!(
                    svg,
                    r#"<rect x="{from:.1}" y="{y:.1}" width="{width:.1}" height="{BAR}" fill="{fill}" stroke="{line}" stroke-width="0.4"/>"#
                );
            }
        }
    }
    let mut at = LEFT;
    let busy = [("application", BUSY), ("copy", COPY), ("scan", SCAN)];
    let blocks = fields.iter().zip(FIELDS).map(|(name, fill)| (*name, fill));
    for (name, fill) in busy.into_iter().chain(blocks) {
        let _ = writeln!(svg, r#"<rect x="{at:.1}" y="280" width="10" height="10" fill="{fill}"/>"#);
        text(&mut svg, (at + 15.0, 289.5), "start", 12, FAINT, name);
        at += 32.0 + 7.2 * name.len() as f64;
    }
    svg.push_str("</svg>\n");
    svg
}
