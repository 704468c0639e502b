//! Compiles the kernels for the host where the emulator is asked for.

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
        // Calls before each access tell the emulator of it, which finds those that are wrong (accesses.cpp).
        compiler().flag("-fsanitize=thread").files(kernels).compile("pumice_kernels_on_host");
        compiler().files(sources(Path::new("emulator"), "cpp")).compile("pumice_emulator");
    }

    fn compiler() -> cc::Build {
        let mut compiler = cc::Build::new();
        compiler
            .cpp(true)
            .std("c++17")
            // Kernels round as the format says: nothing may be fused. They are too slow to test without optimisation.
            .flag("-ffp-contract=off")
            .opt_level(2)
            .flag("-xc++")
            .flag_if_supported("-Wno-unknown-pragmas")
            // Kernels register themselves, so that nothing refers to them.
            .link_lib_modifier("+whole-archive");
        compiler
    }

    fn sources(folder: &Path, extension: &str) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).expect("the folder is part of the crate");
        let paths = entries.map(|entry| entry.expect("the folder can be read").path());
        paths.filter(|path| path.extension().is_some_and(|e| e == extension)).collect()
    }
}
