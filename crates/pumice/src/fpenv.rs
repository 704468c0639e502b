//! The floating-point environment that the guarantee rests on.
//!
//! A host program may have switched its threads to flush subnormals to zero, or to another rounding mode (numerical
//! codes do, and so does any library built with fast-math). The codec needs IEEE defaults, on both sides, or encoder and
//! decoder would disagree; so it sets them around each chunk and puts back what it found.
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
}
