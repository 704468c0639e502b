//! With the feature `emulator`, compiles the kernels for the host.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "emulator")]
    emulator::build();
}

#[cfg(feature = "emulator")]
mod emulator {
    use std::path::{Path, PathBuf};

    pub(super) fn build() {
        for folder in ["kernels", "emulator"] {
            println!("cargo::rerun-if-changed={folder}");
        }
        let mut kernels = [sources(Path::new("kernels"), "cu"), sources(Path::new("emulator"), "cu")].concat();
        kernels.sort();
        // The compiler inserts a call before each memory access, in which the emulator checks it (accesses.cpp).
        compiler().flag("-fsanitize=thread").files(kernels).compile("pumice_kernels_on_host");
        compiler().files(sources(Path::new("emulator"), "cpp")).compile("pumice_emulator");
    }

    fn compiler() -> cc::Build {
        let mut compiler = cc::Build::new();
        compiler
            .cpp(true)
            .std("c++17")
            // The format specifies rounding, so nothing may be fused. Without optimisation, tests are too slow.
            .flag("-ffp-contract=off")
            .opt_level(2)
            .flag("-xc++")
            .flag_if_supported("-Wno-unknown-pragmas")
            // Kernels register themselves; since nothing refers to them, the linker would drop them.
            .link_lib_modifier("+whole-archive");
        compiler
    }

    fn sources(folder: &Path, extension: &str) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).expect("the folder is part of the crate");
        let paths = entries.map(|entry| entry.expect("the folder can be read").path());
        paths.filter(|path| path.extension().is_some_and(|e| e == extension)).collect()
    }
}
