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
        let folders = ["kernels", "emulator"];
        folders.iter().for_each(|folder| println!("cargo::rerun-if-changed={folder}"));
        let mut sources: Vec<PathBuf> = folders.iter().flat_map(|folder| sources(Path::new(folder))).collect();
        sources.sort();
        cc::Build::new()
            .cpp(true)
            .std("c++17")
            // Kernels round as the format says: nothing may be fused. They are too slow to test without optimisation.
            .flag("-ffp-contract=off")
            .opt_level(2)
            .flag("-xc++")
            .flag_if_supported("-Wno-unknown-pragmas")
            .files(&sources)
            // Kernels register themselves, so that nothing refers to them.
            .link_lib_modifier("+whole-archive")
            .compile("pumice_kernels_on_host");
    }

    fn sources(folder: &Path) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).expect("the folder is part of the crate");
        let paths = entries.map(|entry| entry.expect("the folder can be read").path());
        paths.filter(|path| path.extension().is_some_and(|e| e == "cu" || e == "cpp")).collect()
    }
}
