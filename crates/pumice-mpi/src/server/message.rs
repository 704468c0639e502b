//! What a client says to a server in each event, and what the servers say to the clients once. Values follow in messages of
//! their own.
//!
//! Both sides are ranks of one program. Still, a message that cannot be read is an error and no panic.

use pumice::{DType, Error, ErrorKind, Result};

use super::Totals;
use crate::agreement::{error_bytes, error_of_bytes};
use crate::local::Block;

/// To servers: what the event is.
pub(super) const HEAD: i32 = 1;
/// To servers: values.
pub(super) const VALUES: i32 = 2;
/// To clients: how it ended.
pub(super) const OUTCOME: i32 = 3;

/// The most values of one message.
pub(super) const PIECE: usize = 1 << 22;

/// A field at a step, as all clients say it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Subject {
    pub(super) field: String,
    pub(super) step: u64,
    pub(super) dtype: DType,
    pub(super) shape: Vec<usize>,
}

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at step {}, {} of shape {:?}", self.field, self.step, self.dtype, self.shape)
    }
}

/// What a client does in an event.
#[derive(Debug)]
pub(super) enum Head {
    /// Hands over values of these boxes, which are within the slab of the server.
    Field { subject: Subject, boxes: Vec<Block> },
    /// Cannot: its arguments are wrong.
    Refused(Error),
    /// Ends.
    Finish,
}

impl Head {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Head::Finish => out.push(0),
            Head::Refused(error) => {
                out.push(1);
                out.extend(error_bytes(error));
            }
            Head::Field { subject, boxes } => {
                out.push(2);
                out.push(subject.dtype.size() as u8);
                let numbers = [subject.step, subject.shape.len() as u64, boxes.len() as u64];
                let numbers = numbers.into_iter().chain(subject.shape.iter().map(|n| *n as u64));
                let numbers = numbers.chain(boxes.iter().flat_map(Block::numbers));
                out.extend(numbers.flat_map(u64::to_le_bytes));
                out.extend(subject.field.as_bytes());
            }
        }
        out
    }

    pub(super) fn of_bytes(bytes: &[u8]) -> Result<Self> {
        let parse = || match bytes.split_first()? {
            (0, []) => Some(Head::Finish),
            (1, error) => Some(Head::Refused(error_of_bytes(error))),
            (2, rest) => {
                let (size, mut rest) = rest.split_first()?;
                let dtype = match size {
                    4 => DType::F32,
                    8 => DType::F64,
                    _ => return None,
                };
                let mut number = || {
                    let (bytes, others) = rest.split_first_chunk()?;
                    rest = others;
                    Some(u64::from_le_bytes(*bytes))
                };
                let (step, rank, n_boxes) = (number()?, number()?, number()?);
                let shape: Vec<usize> = (0..rank).map(|_| Some(number()? as usize)).collect::<Option<_>>()?;
                let mut boxes = Vec::new();
                for _ in 0..n_boxes {
                    let numbers: Vec<u64> = (0..2 * rank).map(|_| number()).collect::<Option<_>>()?;
                    boxes.push(Block::of_numbers(&numbers));
                }
                let field = String::from_utf8(rest.to_vec()).ok()?;
                Some(Head::Field { subject: Subject { field, step, dtype, shape }, boxes })
            }
            _ => None,
        };
        parse().ok_or_else(|| Error::new(ErrorKind::Corrupt, "a message of a client cannot be read"))
    }

    /// How many values follow.
    pub(super) fn n_values(&self) -> usize {
        match self {
            Head::Field { boxes, .. } => boxes.iter().map(Block::n_values).sum(),
            _ => 0,
        }
    }
}

/// How a run ended.
pub(super) fn outcome_bytes(outcome: &Result<Totals>) -> Vec<u8> {
    match outcome {
        Ok(totals) => {
            let numbers = [totals.n_fields, totals.raw_bytes, totals.stored_bytes];
            std::iter::once(0).chain(numbers.into_iter().flat_map(u64::to_le_bytes)).collect()
        }
        Err(error) => std::iter::once(1).chain(error_bytes(error)).collect(),
    }
}

pub(super) fn outcome_of_bytes(bytes: &[u8]) -> Result<Totals> {
    match bytes.split_first() {
        Some((0, numbers)) if numbers.len() == 24 => {
            let number = |i: usize| u64::from_le_bytes(std::array::from_fn(|k| numbers[8 * i + k]));
            Ok(Totals { n_fields: number(0), raw_bytes: number(1), stored_bytes: number(2) })
        }
        Some((1, error)) => Err(error_of_bytes(error)),
        _ => Err(Error::new(ErrorKind::Corrupt, "the message of the servers cannot be read")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_were_written() {
        let subject = Subject { field: "t".into(), step: 7, dtype: DType::F64, shape: vec![3, 40] };
        let boxes = vec![Block::new(&[0, 1], &[2, 3]), Block::new(&[2, 0], &[1, 40])];
        let bytes = Head::Field { subject: subject.clone(), boxes: boxes.clone() }.to_bytes();
        let head = Head::of_bytes(&bytes).unwrap();
        assert_eq!(head.n_values(), 46);
        assert!(matches!(head, Head::Field { subject: s, boxes: b } if s == subject && b == boxes));
        // The name is what is left.
        for n in 0..bytes.len() - 1 {
            assert!(Head::of_bytes(&bytes[..n]).is_err(), "{n} bytes");
        }
        let refused = Head::Refused(Error::unsupported("no")).to_bytes();
        let Head::Refused(error) = Head::of_bytes(&refused).unwrap() else { panic!("it is an error") };
        assert_eq!((error.kind(), error.to_string()), (ErrorKind::Unsupported, "no".into()));
        assert!(matches!(Head::of_bytes(&Head::Finish.to_bytes()).unwrap(), Head::Finish));
        let totals = Totals { n_fields: 1, raw_bytes: 2, stored_bytes: 3 };
        assert_eq!(outcome_of_bytes(&outcome_bytes(&Ok(totals))).unwrap(), totals);
        assert!(outcome_of_bytes(&[]).is_err() && outcome_of_bytes(&[0, 1]).is_err());
        let failed = outcome_of_bytes(&outcome_bytes(&Err(Error::unsupported("no"))));
        assert_eq!(failed.unwrap_err().kind(), ErrorKind::Unsupported);
    }
}
