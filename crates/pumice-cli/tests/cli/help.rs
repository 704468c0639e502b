//! Help, manual pages, completions and exit codes.

use crate::sandbox::{Sandbox, smooth, stderr};

#[test]
fn every_command_has_help() {
    let sandbox = Sandbox::new();
    assert!(sandbox.run("--version").starts_with("pumice "));
    let help = sandbox.run("--help");
    for command in [
        "compress",
        "decompress",
        "info",
        "check",
        "recover",
        "demo",
        "analyze",
        "bench",
        "codebook",
        "completions",
        "man",
    ] {
        assert!(help.contains(command));
        assert!(sandbox.run(&format!("{command} --help")).contains("Usage: pumice"), "{command}");
    }
}

#[test]
fn devices_and_their_exit_code_are_in_the_help() {
    let sandbox = Sandbox::new();
    assert!(sandbox.run("--help").contains("8 no device"));
    for command in ["compress", "decompress", "bench"] {
        let help = sandbox.run(&format!("{command} --help"));
        assert!(help.contains("--device <DEVICE>") && help.contains("- auto:"), "{help}");
    }
}

#[test]
fn completions_and_manual_pages_are_written() {
    let sandbox = Sandbox::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(sandbox.run(&format!("completions {shell}")).contains("decompress"), "{shell}");
    }
    assert!(sandbox.run("man").starts_with(".ie"));
    let report = sandbox.json("man pages");
    for path in report["written"].as_array().unwrap() {
        assert!(sandbox.read(path.as_str().unwrap()).len() > 500, "{path}");
    }
    assert!(sandbox.path("pages/pumice-compress.1").exists());
}

#[test]
fn wrong_arguments_exit_with_2() {
    let sandbox = Sandbox::new();
    sandbox.write_f32("x_10.f32", &smooth(&[10]));
    for line in [
        "",
        "frobnicate",
        "compress x_10.f32 -o x.pum",
        "compress x_10.f32 -o x.pum --abs 1 --range 0,1",
        "compress x_10.f32 -o x.pum --abs 1 --roi 0:5",
        "compress x_10.f32 -o x.pum --abs 1 --roi 0:50=lossless",
        "compress x_10.f32 -o x.pum --abs 1 --bin 2,2",
        "compress x_10.f32 -o x.pum --pwrel -1",
        "compress x_10.f32 -o x.pum --abs -1",
        "compress x_10.f32 -o x.pum --abs nan",
        "compress x_10.f32 -o x.pum --rel 1 --range 5,1",
        "compress x_10.f32 -o x.pum --rel 1 --preset nonsense",
        "compress x_10.f32 -o x.pum --rel 1 --chunk 3,4",
        "compress x_10.f32 --abs 1",
    ] {
        let output = sandbox.output(line);
        assert_eq!(output.status.code(), Some(2), "pumice {line}: {}", stderr(&output));
    }
    assert_eq!(sandbox.files(), ["x_10.f32"]);
}

#[test]
fn missing_files_exit_with_6() {
    let sandbox = Sandbox::new();
    for line in [
        "info no.pum",
        "compress no_3.f32 -o x.pum --abs 1",
        "decompress no.pum -o y.f32",
        "recover no.pum -o y",
        "bench no_3.f32",
        "analyze no_3.f32",
    ] {
        let message = sandbox.fails(line, 6);
        assert!(message.starts_with("error: ") && message.contains("no"), "{message}");
    }
}

#[test]
fn a_mistyped_instruction_set_is_an_error() {
    let sandbox = Sandbox::new();
    sandbox.write_f32("x_10.f32", &smooth(&[10]));
    let with_isa = |name: &str| {
        let mut command = sandbox.command("compress x_10.f32 -o x.pum --abs 1");
        command.env("PUMICE_ISA", name).output().unwrap()
    };
    let output = with_isa("avx-2");
    assert_eq!(output.status.code(), Some(2));
    let message = stderr(&output);
    assert!(message.contains("PUMICE_ISA is 'avx-2'") && message.contains("portable"), "{message}");
    assert!(with_isa("portable").status.success());
}
