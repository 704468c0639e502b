//! Random fields.

use crate::Rng;

/// `n` values of a normal distribution with mean 0 and variance 1, by the method of Box and Muller.
pub(crate) fn normal(rng: &mut Rng, n: usize) -> Vec<f64> {
    let mut values = Vec::with_capacity(n + 1);
    while values.len() < n {
        let radius = (-2.0 * libm::log(1.0 - rng.unit())).sqrt();
        let (sin, cos) = libm::sincos(2.0 * std::f64::consts::PI * rng.unit());
        values.extend([radius * cos, radius * sin]);
    }
    values.truncate(n);
    values
}

/// Uniform between two numbers.
pub(crate) fn between(rng: &mut Rng, low: f64, high: f64) -> f64 {
    low + (high - low) * rng.unit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_variance_are_those_of_the_normal_distribution() {
        let values = normal(&mut Rng::new(1), 100_001);
        assert_eq!(values.len(), 100_001);
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|v| v * v).sum::<f64>() / values.len() as f64;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
    }
}
