//! A toy application: a wave in a cube of uneven material, on an accelerator that is made of one thread. The compute thread
//! starts steps, waits for them, and works on results in between, as programs do that compute on a GPU.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Fields on a cube; the faces stay at rest.
pub(crate) struct Wave {
    edge: usize,
    pub(crate) height: Vec<f32>,
    pub(crate) speed: Vec<f32>,
    stiffness: Vec<f32>,
}

impl Wave {
    fn new(edge: usize) -> Self {
        let place = |i: usize| [i / edge / edge, i / edge % edge, i % edge].map(|x| x as f32 / edge as f32);
        let n = edge * edge * edge;
        let pulses = [[0.3, 0.4, 0.35], [0.7, 0.55, 0.6], [0.5, 0.75, 0.25]];
        let height = |i: usize| {
            let at = place(i);
            let pulse = |centre: &[f32; 3]| {
                let squares: f32 = at.iter().zip(centre).map(|(x, c)| (x - c) * (x - c)).sum();
                (-squares * 150.0).exp()
            };
            pulses.iter().map(pulse).sum::<f32>()
        };
        let stiffness = |i: usize| {
            let [x, y, z] = place(i);
            0.1 + 0.03 * (9.0 * x + 4.0 * y).sin() * (7.0 * z).cos()
        };
        Self {
            edge,
            height: (0..n).map(height).collect(),
            speed: vec![0.0; n],
            stiffness: (0..n).map(stiffness).collect(),
        }
    }

    fn step(&mut self) {
        let (edge, plane) = (self.edge, self.edge * self.edge);
        for x in 1..edge - 1 {
            for y in 1..edge - 1 {
                let row = x * plane + y * edge;
                for i in row + 1..row + edge - 1 {
                    let h = &self.height;
                    let around = h[i - 1] + h[i + 1] + h[i - edge] + h[i + edge] + h[i - plane] + h[i + plane];
                    self.speed[i] += self.stiffness[i] * (around - 6.0 * h[i]);
                }
            }
        }
        self.height.iter_mut().zip(&self.speed).for_each(|(h, v)| *h += 0.5 * v);
    }

    /// Work of the compute thread: the energy in each cell, and its sum.
    pub(crate) fn energy(&self, energy: &mut [f32]) -> f64 {
        let mut sum = 0.0;
        for (i, e) in energy.iter_mut().enumerate() {
            *e = 0.5 * self.speed[i] * self.speed[i] + self.stiffness[i] * self.height[i] * self.height[i];
            sum += f64::from(*e);
        }
        sum
    }
}

/// The thread that steps the wave. A step takes at least a certain time, as a larger one would on a real accelerator.
pub(crate) struct Accelerator {
    wave: Arc<Mutex<Wave>>,
    start: Sender<Duration>,
    ended: Receiver<()>,
}

impl Accelerator {
    pub(crate) fn new(edge: usize) -> Self {
        let wave = Arc::new(Mutex::new(Wave::new(edge)));
        let (start, started) = channel::<Duration>();
        let (end, ended) = channel();
        let there = wave.clone();
        std::thread::spawn(move || {
            for least in started {
                let start = Instant::now();
                lock(&there).step();
                std::thread::sleep(least.saturating_sub(start.elapsed()));
                if end.send(()).is_err() {
                    break;
                }
            }
        });
        Self { wave, start, ended }
    }

    pub(crate) fn wave(&self) -> MutexGuard<'_, Wave> {
        lock(&self.wave)
    }

    /// Starts a step; [`Self::wait`] waits for it.
    pub(crate) fn start(&self, least: Duration) {
        self.start.send(least).expect("the accelerator lives");
    }

    pub(crate) fn wait(&self) {
        self.ended.recv().expect("the accelerator lives");
    }
}

fn lock(wave: &Mutex<Wave>) -> MutexGuard<'_, Wave> {
    wave.lock().unwrap_or_else(PoisonError::into_inner)
}
