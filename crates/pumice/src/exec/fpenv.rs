//! The floating-point environment that the error bound depends on.
//!
//! A host program may have set its threads to flush subnormals to zero, or to another rounding mode; numerical codes
//! do, and so does any library built with fast-math. Encoder and decoder need IEEE defaults, or they would disagree. So
//! they set these around each chunk, statistics and plan, and restore the previous settings. x86-64 keeps the settings
//! of a thread in MXCSR, aarch64 in FPCR; on other architectures the settings are not changed.
#![allow(unsafe_code)]

/// While this lives, the current thread computes with IEEE defaults.
pub(crate) struct DefaultFloats {
    found: Mode,
}

impl DefaultFloats {
    pub(crate) fn set() -> Self {
        let found = Mode::current();
        if !found.is_default() {
            Mode::DEFAULT.make_current();
        }
        Self { found }
    }
}

impl Drop for DefaultFloats {
    fn drop(&mut self) {
        if !self.found.is_default() {
            self.found.make_current();
        }
    }
}

/// The content of MXCSR.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[derive(Clone, Copy)]
struct Mode(u32);

#[cfg(all(target_arch = "x86_64", not(miri)))]
impl Mode {
    /// Rounding to nearest, no flushing, all exceptions masked.
    const DEFAULT: Self = Self(0x1F80);
    /// The sticky exception flags, which are not part of the mode.
    const FLAGS: u32 = 0x3F;

    fn current() -> Self {
        let mut mxcsr = 0_u32;
        // SAFETY: stores the control register at a valid address; SSE is part of x86-64.
        unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &mut mxcsr, options(nostack, preserves_flags)) };
        Self(mxcsr)
    }

    fn is_default(self) -> bool {
        self.0 & !Self::FLAGS == Self::DEFAULT.0
    }

    fn make_current(self) {
        // SAFETY: loads the control register from a valid address; the value is one that the processor has accepted before
        // or the default, so no reserved bit is set.
        unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &self.0, options(nostack, readonly, preserves_flags)) };
    }
}

/// The content of FPCR. The exception flags are in another register, FPSR.
#[cfg(all(target_arch = "aarch64", not(miri)))]
#[derive(Clone, Copy)]
struct Mode(u64);

#[cfg(all(target_arch = "aarch64", not(miri)))]
impl Mode {
    /// Rounding to nearest, no flushing, NaNs keep their payload, no traps.
    const DEFAULT: Self = Self(0);

    fn current() -> Self {
        let fpcr: u64;
        // SAFETY: reads a control register that every thread may read.
        unsafe { std::arch::asm!("mrs {}, fpcr", out(reg) fpcr, options(nostack, preserves_flags)) };
        Self(fpcr)
    }

    fn is_default(self) -> bool {
        self.0 == Self::DEFAULT.0
    }

    fn make_current(self) {
        // SAFETY: writes a control register that every thread may write; the value is one that was read from it, or the
        // default. Not `nomem`: computations must not be moved across it.
        unsafe { std::arch::asm!("msr fpcr, {}", in(reg) self.0, options(nostack, preserves_flags)) };
    }
}

/// An architecture whose settings are not changed. Miri supports only the default.
#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
#[derive(Clone, Copy)]
struct Mode;

#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
impl Mode {
    const DEFAULT: Self = Self;

    fn current() -> Self {
        Self
    }

    fn is_default(self) -> bool {
        true
    }

    fn make_current(self) {}
}

#[cfg(all(test, any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
mod tests {
    use std::hint::black_box;

    use super::*;

    /// Bits that flush subnormals to zero, as operands and as results.
    #[cfg(target_arch = "x86_64")]
    const FLUSH: Mode = Mode(0x8040);
    #[cfg(target_arch = "aarch64")]
    const FLUSH: Mode = Mode(1 << 24);

    /// Bits that round upwards, downwards and towards zero.
    #[cfg(target_arch = "x86_64")]
    const ROUNDINGS: [Mode; 3] = [Mode(0x4000), Mode(0x2000), Mode(0x6000)];
    #[cfg(target_arch = "aarch64")]
    const ROUNDINGS: [Mode; 3] = [Mode(1 << 22), Mode(2 << 22), Mode(3 << 22)];

    /// Calls `work` with these bits set beside the defaults.
    fn in_mode<R>(bits: Mode, work: impl FnOnce() -> R) -> R {
        Mode(Mode::DEFAULT.0 | bits.0).make_current();
        let result = work();
        Mode::DEFAULT.make_current();
        result
    }

    /// A subnormal number, and thirds of one and minus one: what the settings change.
    fn sensitive_results() -> [u32; 3] {
        // A black box at each end keeps the compiler from moving the division to where the settings differ.
        let quotient = |a: f32, b: f32| black_box(black_box(a) / black_box(b)).to_bits();
        [quotient(f32::MIN_POSITIVE, 4.0), quotient(1.0, 3.0), quotient(-1.0, 3.0)]
    }

    #[test]
    fn sets_the_defaults_and_restores_what_it_found() {
        let expected = sensitive_results();
        for bits in std::iter::once(FLUSH).chain(ROUNDINGS) {
            let (before, within, after, left) = in_mode(bits, || {
                let before = sensitive_results();
                let floats = DefaultFloats::set();
                let within = sensitive_results();
                drop(floats);
                (before, within, sensitive_results(), Mode::current().0 & bits.0)
            });
            assert_ne!(before, expected, "{:x} changes nothing on this machine", bits.0);
            assert_eq!(within, expected, "{:x}", bits.0);
            assert_eq!((after, left), (before, bits.0), "{:x}", bits.0);
        }
    }

    #[test]
    fn the_callers_settings_change_nothing() {
        use crate::{Config, ErrorBound, Preset};
        // Both sides of the least normal number, where flushing would change the range by a factor.
        let tiny: Vec<f32> = (0..30_000).map(|i| 1.1e-38 + 1e-39 * (i as f32 * 0.01).sin()).collect();
        let plain: Vec<f32> = (0..30_000).map(|i| (i as f32 * 0.01).sin() / 3.0).collect();
        for mode in std::iter::once(FLUSH).chain(ROUNDINGS) {
            for data in [&tiny, &plain] {
                for (preset, rel, threads) in
                    [(Preset::Fast, 1.0, 1), (Preset::Small, 0.1, 2), (Preset::Small, 10.0, 1)]
                {
                    let config = Config::new(ErrorBound::Rel(rel)).preset(preset).threads(threads);
                    let expected = crate::compress(data, &[data.len()], &config).unwrap();
                    let (found, restored) = in_mode(mode, || {
                        let found = crate::compress(data, &[data.len()], &config);
                        (found, crate::decompress::<f32>(&expected))
                    });
                    assert!(found.unwrap() == expected, "{preset:?} {rel} {:x}", mode.0);
                    let restored = restored.unwrap();
                    let bound = crate::inspect(&expected).unwrap().abs_bound;
                    assert!(crate::metrics::compare(data, &restored.data, bound, &[]).bound_kept());
                }
            }
        }
    }
}
