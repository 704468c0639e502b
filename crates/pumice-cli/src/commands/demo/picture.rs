//! Pictures of a field: original, restored and error side by side, each with a caption and a colour bar.
//!
//! A volume is shown by its middle slice, a list of particle positions by a histogram of position over list index.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use pumice::{ErrorKind, Info};

use super::colour::{self, DIVERGING, GREY, INK, PAPER, Rgb, VIRIDIS, WHITE};
use super::fields::Field;
use super::font;
use crate::failure::{Failure, Result, io_context};
use crate::text;

/// Captions are drawn at twice the size of the font.
const TEXT_SCALE: usize = 2;
const LINE: usize = font::HEIGHT * TEXT_SCALE + 6;
const BAR_HEIGHT: usize = 12;
const MARGIN: usize = 16;
/// Panels are enlarged by a whole factor up to about this width.
const PANEL_WIDTH: usize = 480;
/// Particles shown, and the grid they are counted on.
const N_PARTICLES: usize = 1 << 14;
const PLOT: (usize, usize) = (240, 480);

/// A grid of numbers to be coloured; NaN means no data.
struct Image {
    height: usize,
    width: usize,
    values: Vec<f32>,
}

/// An image, how to colour it and what to write above and below.
struct Panel {
    title: String,
    image: Image,
    map: &'static [Rgb],
    no_data: Rgb,
    limits: (f32, f32),
    labels: (String, String),
}

/// Pixels in rows from the top.
pub(crate) struct Picture {
    width: usize,
    height: usize,
    pixels: Vec<Rgb>,
}

/// Draws a field beside its restored values.
pub(crate) fn draw(field: &Field, restored: &[f32], info: &Info) -> Picture {
    let bound = info.abs_bound as f32;
    let ratio = info.raw_bytes as f64 / info.compressed_bytes as f64;
    let errors: Vec<f32> = field.values.iter().zip(restored).map(|(x, y)| y - x).collect();
    let titles = [
        format!("{}: original", field.name),
        format!("restored at 1 %, {} smaller", text::ratio(ratio)),
        "error".to_string(),
    ];
    let panels = if field.shape.len() == 1 {
        let limits = (0.0, field.values.iter().copied().fold(0.0, f32::max));
        [
            density(&field.values, limits, &titles[0], ("few particles", "many")),
            density(restored, limits, &titles[1], ("few particles", "many")),
            density(&errors, (-bound, bound), "error (bottom -bound, top +bound)", ("few", "many")),
        ]
    } else {
        let limits = limits(field);
        let labels = (text::number(limits.0.into(), 3), text::number(limits.1.into(), 3));
        let coloured = |values: &[f32], title: &str| Panel {
            title: title.into(),
            image: slice(field, values),
            map: &VIRIDIS,
            no_data: GREY,
            limits,
            labels: labels.clone(),
        };
        [
            coloured(&field.values, &titles[0]),
            coloured(restored, &titles[1]),
            Panel {
                title: titles[2].clone(),
                image: slice(field, &errors),
                map: &DIVERGING,
                no_data: GREY,
                limits: (-bound, bound),
                labels: ("-bound".into(), "+bound".into()),
            },
        ]
    };
    Picture::of(&panels)
}

/// Smallest and largest value that are data.
fn limits(field: &Field) -> (f32, f32) {
    let data = field.values.iter().copied().filter(|v| Some(*v) != field.fill);
    data.fold((f32::INFINITY, f32::NEG_INFINITY), |(lo, hi), v| (lo.min(v), hi.max(v)))
}

/// The last two axes at the middle of all others; fill values become NaN.
fn slice(field: &Field, values: &[f32]) -> Image {
    let rank = field.shape.len();
    let (height, width) = (field.shape[rank - 2], field.shape[rank - 1]);
    let n_slices = values.len() / (height * width);
    let at = n_slices / 2 * height * width..(n_slices / 2 + 1) * height * width;
    let shown = |(v, original): (&f32, &f32)| if Some(*original) == field.fill { f32::NAN } else { *v };
    let values = values[at.clone()].iter().zip(&field.values[at]).map(shown).collect();
    Image { height, width, values }
}

/// A histogram of the first particles: position in the box over index in the list.
fn density(values: &[f32], (low, high): (f32, f32), title: &str, labels: (&str, &str)) -> Panel {
    let (height, width) = PLOT;
    let mut counts = vec![0.0f32; height * width];
    let shown = &values[..N_PARTICLES.min(values.len())];
    for (i, v) in shown.iter().enumerate() {
        let up = ((v - low) / (high - low) * height as f32).clamp(0.0, height as f32 - 1.0) as usize;
        counts[(height - 1 - up) * width + i * width / shown.len()] += 1.0;
    }
    let most = counts.iter().copied().fold(1.0, f32::max);
    let values = counts.iter().map(|&n| if n == 0.0 { f32::NAN } else { n.ln() }).collect();
    Panel {
        title: title.into(),
        image: Image { height, width, values },
        map: &VIRIDIS,
        no_data: PAPER,
        limits: (0.0, most.ln().max(1.0)),
        labels: (labels.0.into(), labels.1.into()),
    }
}

impl Picture {
    fn of(panels: &[Panel]) -> Self {
        let scale = (PANEL_WIDTH / panels[0].image.width).max(1);
        let (panel_width, panel_height) = (panels[0].image.width * scale, panels[0].image.height * scale);
        let width = MARGIN + panels.len() * (panel_width + MARGIN);
        let height = MARGIN + LINE + panel_height + 8 + BAR_HEIGHT + 8 + LINE;
        let mut picture = Self { width, height, pixels: vec![WHITE; width * height] };
        for (i, panel) in panels.iter().enumerate() {
            picture.panel(panel, MARGIN + i * (panel_width + MARGIN), MARGIN, scale);
        }
        picture
    }

    fn panel(&mut self, panel: &Panel, left: usize, top: usize, scale: usize) {
        let Panel { image, map, no_data, limits: (low, high), .. } = panel;
        let (width, height) = (image.width * scale, image.height * scale);
        self.text(&panel.title, left, top);
        let top = top + LINE;
        for y in 0..height {
            for x in 0..width {
                let value = image.values[y / scale * image.width + x / scale];
                let colour = if value.is_nan() { *no_data } else { colour::blend(map, (value - low) / (high - low)) };
                self.pixels[(top + y) * self.width + left + x] = colour;
            }
        }
        let top = top + height + 8;
        for x in 0..width {
            let colour = colour::blend(map, x as f32 / (width - 1) as f32);
            for y in 0..BAR_HEIGHT {
                self.pixels[(top + y) * self.width + left + x] = colour;
            }
        }
        let top = top + BAR_HEIGHT + 8;
        self.text(&panel.labels.0, left, top);
        let label_width = panel.labels.1.len() * font::ADVANCE * TEXT_SCALE;
        self.text(&panel.labels.1, left + width.saturating_sub(label_width), top);
    }

    fn text(&mut self, text: &str, left: usize, top: usize) {
        for (x, y) in font::dots(text) {
            for (dx, dy) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
                let (x, y) = (left + x * TEXT_SCALE + dx, top + y * TEXT_SCALE + dy);
                if x < self.width && y < self.height {
                    self.pixels[y * self.width + x] = INK;
                }
            }
        }
    }

    /// Writes the picture as PNG.
    pub(crate) fn save(&self, path: &Path) -> Result<()> {
        let file = File::create(path).map_err(io_context("write", path))?;
        let mut encoder = png::Encoder::new(BufWriter::new(file), self.width as u32, self.height as u32);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        let failed =
            |e: png::EncodingError| Failure::new(ErrorKind::Io, format!("cannot write {}: {e}", path.display()));
        let mut writer = encoder.write_header().map_err(failed)?;
        writer.write_image_data(self.pixels.as_flattened()).map_err(failed)?;
        writer.finish().map_err(failed)
    }
}
