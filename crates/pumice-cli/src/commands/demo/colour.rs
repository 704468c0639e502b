//! Colour maps: a few anchor colours each, blended in between.

/// Red, green, blue.
pub(crate) type Rgb = [u8; 3];

pub(crate) const WHITE: Rgb = [255, 255, 255];
pub(crate) const INK: Rgb = [40, 40, 46];
/// The colour of positions without data.
pub(crate) const GREY: Rgb = [198, 198, 202];
/// The background of plots.
pub(crate) const PAPER: Rgb = [242, 242, 244];

/// Even steps in brightness and hue, after Matplotlib's viridis.
pub(crate) const VIRIDIS: [Rgb; 9] = [
    [68, 1, 84],
    [71, 44, 122],
    [59, 81, 139],
    [44, 113, 142],
    [33, 144, 141],
    [39, 173, 129],
    [92, 200, 99],
    [170, 220, 50],
    [253, 231, 37],
];

/// Blue below, white at zero, red above.
pub(crate) const DIVERGING: [Rgb; 7] =
    [[33, 102, 172], [103, 169, 207], [209, 229, 240], [247, 247, 247], [253, 219, 199], [239, 138, 98], [178, 24, 43]];

/// The colour at `t` in 0 to 1; outside, the nearest end.
pub(crate) fn blend(map: &[Rgb], t: f32) -> Rgb {
    let position = t.clamp(0.0, 1.0) * (map.len() - 1) as f32;
    let i = (position as usize).min(map.len() - 2);
    let f = position - i as f32;
    std::array::from_fn(|c| (f32::from(map[i][c]) * (1.0 - f) + f32::from(map[i + 1][c]) * f).round() as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_exact() {
        assert_eq!(blend(&VIRIDIS, 0.0), VIRIDIS[0]);
        assert_eq!(blend(&VIRIDIS, 1.0), VIRIDIS[8]);
        assert_eq!(blend(&DIVERGING, 0.5), DIVERGING[3]);
        assert_eq!(blend(&DIVERGING, 7.0), DIVERGING[6]);
    }
}
