#![allow(missing_docs)]
fn main() {
    use pumice::*;
    let mut bad = std::collections::BTreeMap::<String, Vec<usize>>::new();
    for n in 1..300usize {
        let v: Vec<f32> = (0..n).map(|i| (i as f32 * 0.05).sin() * 16.0 + 1.0).collect();
        for (name, b) in [("lossless", Bound::Lossless), ("abs", Bound::Abs(1e-3))] {
            let s = compress(&v, &[n], &Config::new(b).threads(1)).unwrap();
            match decompress::<f32>(&s) {
                Ok(r) => {
                    let tol = if name == "abs" { 1e-3 } else { 0.0 };
                    if v.iter().zip(&r.data).any(|(a, b)| (a - b).abs() > tol) { bad.entry(name.into()).or_default().push(n); }
                }
                Err(e) => { bad.entry(format!("{name} {e}")).or_default().push(n); }
            }
        }
    }
    println!("{bad:?}");
    let v: Vec<f32> = (0..7 * 5 * 13).map(|i| (i as f32 * 0.05).sin() * 16.0 + 1.0).collect();
    let s = compress(&v, &[7, 5, 13], &Config::new(Bound::Lossless).threads(1)).unwrap();
    let r = decompress::<f32>(&s).unwrap();
    let w: Vec<usize> = v.iter().zip(&r.data).enumerate().filter(|(_, (a, b))| a != b).map(|(i, _)| i).collect();
    println!("7x5x13: {} wrong {:?} {:?} {:?}", w.len(), &w.get(..10), &v[..3], &r.data[..3]);
    println!("{:?}", &s[..60]);
}
