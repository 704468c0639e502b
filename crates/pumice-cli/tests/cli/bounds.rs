//! Bounds relative to each value, several bounds, regions with bounds of their own, and bins.

use crate::sandbox::{Sandbox, smooth};

fn with_field() -> (Sandbox, Vec<f32>) {
    let sandbox = Sandbox::new();
    let values: Vec<f32> = smooth(&[12, 40, 50]).iter().map(|x| x * x + 1e-3).collect();
    sandbox.write_f32("x_12x40x50.f32", &values);
    (sandbox, values)
}

#[test]
fn several_bounds_hold_together() {
    let (sandbox, values) = with_field();
    let report = sandbox.json("compress x_12x40x50.f32 -o x.pum --pwrel 1e-3 --abs 1e-2 --verify");
    assert_eq!(report["bounds"].as_array().unwrap().len(), 2);
    let info = sandbox.json("info x.pum");
    assert_eq!(info["bounds"][1], serde_json::json!({"kind": "pwrel", "value": 1e-3}));
    sandbox.run("decompress x.pum -o y.f32");
    let restored = sandbox.read_f32("y.f32");
    for (x, y) in values.iter().zip(&restored) {
        assert!((x - y).abs() <= 1e-2_f32.min(1e-3 * x), "{x} {y}");
    }
    let found = sandbox.json("check x_12x40x50.f32 x.pum");
    assert_eq!(found["bound_kept"], true);
    let share = found["max_error_over_bound"].as_f64().unwrap();
    assert!(share > 0.5 && share <= 1.0, "{share}");
    sandbox.run("check x_12x40x50.f32 y.f32 --pwrel 1e-3");
    sandbox.fails("check x_12x40x50.f32 y.f32 --pwrel 1e-6", 1);
    assert!(sandbox.run("info x.pum").contains("1e-3 of each value"));
}

#[test]
fn regions_keep_their_own_bounds() {
    let (sandbox, values) = with_field();
    sandbox.run("compress x_12x40x50.f32 -o x.pum --abs 0.1 --roi :,10:20,0:5=lossless --roi 3=abs:1e-3 --verify");
    let info = sandbox.json("info x.pum");
    assert_eq!(info["regions"][0]["region"], serde_json::json!([[0, 12], [10, 20], [0, 5]]));
    assert_eq!(info["regions"][1]["kind"], "abs");
    sandbox.run("decompress x.pum -o y.f32");
    let restored = sandbox.read_f32("y.f32");
    for (i, (x, y)) in values.iter().zip(&restored).enumerate() {
        let (z, row, column) = (i / 2000, i / 50 % 40, i % 50);
        let bound = if (10..20).contains(&row) && column < 5 {
            0.0
        } else if z == 3 {
            1e-3
        } else {
            0.1
        };
        assert!((x - y).abs() <= bound, "{z} {row} {column}");
    }
    assert!(sandbox.fails("compress x_12x40x50.f32 -o y.pum --abs 1 --roi 0:5=abs", 2).contains("REGION=KIND:E"));
}

#[test]
fn reports_mention_bins() {
    let (sandbox, mut values) = with_field();
    sandbox.run("compress x_12x40x50.f32 -o x.pum --abs 1e-3 --bin 1,2,2 --roi 3=abs:1e-4 --verify");
    assert_eq!(sandbox.json("info x.pum")["bin"], serde_json::json!([1, 2, 2]));
    assert!(sandbox.run("info x.pum").contains("the bound holds for them"));
    assert!(sandbox.run("check x_12x40x50.f32 x.pum").contains("for the means of bins"));
    let found = sandbox.json("check x_12x40x50.f32 x.pum");
    assert_eq!((&found["bound_kept"], &found["bound_is_for_means"]), (&true.into(), &true.into()));
    values[0] += 1.0;
    sandbox.write_f32("x_12x40x50.f32", &values);
    sandbox.fails("check x_12x40x50.f32 x.pum", 1);
}
