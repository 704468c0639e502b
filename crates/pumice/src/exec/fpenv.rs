//! The floating-point environment that the guarantee rests on.
//!
//! A host program may have switched its threads to flush subnormals to zero, or to another rounding mode (numerical
//! codes do, and so does any library built with fast-math). The codec needs IEEE defaults, on both sides, or encoder and
//! decoder would disagree; so it sets them around each chunk, statistics and plan, and puts back what it found.
#![allow(unsafe_code)]

/// While this lives, the current thread computes with IEEE defaults.
pub(crate) struct DefaultFloats {
    #[cfg(target_arch = "x86_64")]
    found: u32,
}

/// Rounding to nearest, no flushing, all exceptions masked.
#[cfg(target_arch = "x86_64")]
const DEFAULT_MXCSR: u32 = 0x1F80;
/// The sticky exception flags, which are not part of the mode.
#[cfg(target_arch = "x86_64")]
const FLAGS: u32 = 0x3F;

impl DefaultFloats {
    pub(crate) fn set() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            let found = read_mxcsr();
            if found & !FLAGS != DEFAULT_MXCSR {
                write_mxcsr(DEFAULT_MXCSR);
            }
            Self { found }
        }
        #[cfg(not(target_arch = "x86_64"))]
        Self {}
    }
}

impl Drop for DefaultFloats {
    fn drop(&mut self) {
        #[cfg(target_arch = "x86_64")]
        if self.found & !FLAGS != DEFAULT_MXCSR {
            write_mxcsr(self.found);
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn read_mxcsr() -> u32 {
    let mut mxcsr = 0_u32;
    // SAFETY: stores the control register at a valid address; SSE is part of x86-64.
    unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &mut mxcsr, options(nostack, preserves_flags)) };
    mxcsr
}

#[cfg(target_arch = "x86_64")]
fn write_mxcsr(mxcsr: u32) {
    // SAFETY: loads the control register from a valid address; either value is one the processor has accepted before
    // or the default, so no reserved bit is set.
    unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &mxcsr, options(nostack, readonly, preserves_flags)) };
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn restores_what_it_found() {
        const FLUSH: u32 = 0x8040;
        write_mxcsr(DEFAULT_MXCSR | FLUSH);
        {
            let _floats = DefaultFloats::set();
            assert_eq!(read_mxcsr() & !FLAGS, DEFAULT_MXCSR);
        }
        let after = read_mxcsr();
        write_mxcsr(DEFAULT_MXCSR);
        assert_eq!(after & FLUSH, FLUSH);
    }

    #[test]
    fn the_callers_settings_change_nothing() {
        use crate::{Config, ErrorBound, Preset};
        // Both sides of the least normal number, where flushing would change the range by a factor.
        let tiny: Vec<f32> = (0..30_000).map(|i| 1.1e-38 + 1e-39 * (i as f32 * 0.01).sin()).collect();
        let plain: Vec<f32> = (0..30_000).map(|i| (i as f32 * 0.01).sin() / 3.0).collect();
        // Flushing both ways, and the three other directions of rounding.
        for mode in [0x8040, 0x2000, 0x4000, 0x6000] {
            for data in [&tiny, &plain] {
                for (preset, rel, threads) in
                    [(Preset::Fast, 1.0, 1), (Preset::Small, 0.1, 2), (Preset::Small, 10.0, 1)]
                {
                    let config = Config::new(ErrorBound::Rel(rel)).preset(preset).threads(threads);
                    let expected = crate::compress(data, &[data.len()], &config).unwrap();
                    write_mxcsr(DEFAULT_MXCSR | mode);
                    let found = crate::compress(data, &[data.len()], &config);
                    let restored = crate::decompress::<f32>(&expected);
                    write_mxcsr(DEFAULT_MXCSR);
                    assert!(found.unwrap() == expected, "{preset:?} {rel} {mode:x}");
                    let restored = restored.unwrap();
                    let bound = crate::inspect(&expected).unwrap().abs_bound;
                    assert!(crate::metrics::compare(data, &restored.data, bound, &[]).bound_kept());
                }
            }
        }
    }
}
