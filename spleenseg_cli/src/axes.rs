//! Axis orders and directions: where each axis of an array points to in the patient.

use ndarray::{ArrayViewD, Axis};

/// For each axis of an array: the axis of the patient (0 right, 1 front, 2 head), and whether it runs the other way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axes([(usize, bool); 3]);

impl Axes {
    /// x to the patient's right, y to the front, z to the head.
    pub const RAS: Self = Self([(0, false), (1, false), (2, false)]);

    /// Three letters such as RAS or LPS.
    pub fn parse(codes: &str) -> Result<Self, String> {
        let known = |letter: u8| {
            let at = b"RLAPSI".iter().position(|known| *known == letter.to_ascii_uppercase())?;
            Some((at / 2, at % 2 == 1))
        };
        let found: Option<Vec<_>> = codes.bytes().map(known).collect();
        match found.as_deref() {
            Some(&[a, b, c]) if a.0 != b.0 && b.0 != c.0 && a.0 != c.0 => Ok(Self([a, b, c])),
            _ => Err(format!(
                "axes '{codes}': accepted are three letters, one each of R or L, A or P, S or I, such as RAS"
            )),
        }
    }

    /// The order that is closest to an affine's columns: where each axis of the file points to.
    pub fn of_affine(affine: &[[f64; 4]; 3]) -> Option<Self> {
        let mut free: Vec<(usize, usize)> =
            (0..3).flat_map(|axis| (0..3).map(move |row| (axis, row))).collect();
        let length = |axis: usize| affine.iter().map(|row| row[axis] * row[axis]).sum::<f64>().sqrt();
        let share = |&(axis, row): &(usize, usize)| affine[row][axis].abs() / length(axis);
        let mut found = [(0, false); 3];
        while !free.is_empty() {
            // The pair that agrees best is fixed first; a column of zeros, or of NaN, agrees with none.
            let best = *free.iter().max_by(|a, b| share(a).total_cmp(&share(b)))?;
            if !(share(&best) > 0.0 && share(&best) <= 1.0 + 1e-9) {
                return None;
            }
            found[best.0] = (best.1, affine[best.1][best.0] < 0.0);
            free.retain(|&(axis, row)| axis != best.0 && row != best.1);
        }
        Some(Self(found))
    }

    /// An array of this order seen in another one: axes swapped and flipped, nothing moved.
    pub fn view_as<'a, T>(self, array: ArrayViewD<'a, T>, other: Self) -> ArrayViewD<'a, T> {
        let from = |patient: usize| self.0.iter().position(|(axis, _)| *axis == patient).unwrap_or(patient);
        let mut view = array.permuted_axes(other.0.map(|(patient, _)| from(patient)).to_vec());
        for (at, (patient, flipped)) in other.0.into_iter().enumerate() {
            if self.0[from(patient)].1 != flipped {
                view.invert_axis(Axis(at));
            }
        }
        view
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::ArrayD;

    fn array() -> ArrayD<usize> {
        ArrayD::from_shape_vec(vec![2, 3, 4], (0..24).collect()).unwrap()
    }

    #[test]
    fn there_and_back_is_the_same() {
        let array = array();
        for codes in ["RAS", "LPS", "SAR", "IPL", "ASL"] {
            let axes = Axes::parse(codes).unwrap();
            let turned = Axes::RAS.view_as(array.view(), axes).to_owned();
            assert_eq!(axes.view_as(turned.view(), Axes::RAS), array, "{codes}");
        }
        let lps = Axes::RAS.view_as(array.view(), Axes::parse("LPS").unwrap());
        assert_eq!(lps[[0, 0, 1]], array[[1, 2, 1]]);
        let sar = Axes::RAS.view_as(array.view(), Axes::parse("SAR").unwrap());
        assert_eq!((sar.shape(), sar[[3, 2, 1]]), (&[4, 3, 2][..], array[[1, 2, 3]]));
    }

    #[test]
    fn the_order_of_an_affine_is_that_of_its_columns() {
        let codes = |text| Axes::parse(text).ok();
        assert_eq!(
            Axes::of_affine(&[[-0.8, 0.0, 0.1, 5.0], [0.0, -0.8, 0.0, 5.0], [0.1, 0.0, 3.0, 5.0]]),
            codes("LPS")
        );
        assert_eq!(
            Axes::of_affine(&[[0.0, 0.1, 2.0, 0.0], [0.9, 0.0, 0.0, 0.0], [0.0, -1.0, 0.3, 0.0]]),
            codes("AIR")
        );
        assert_eq!(Axes::of_affine(&[[0.0; 4]; 3]), None);
    }

    #[test]
    fn other_letters_are_refused() {
        for wrong in ["", "RA", "RASI", "RAL", "XYZ"] {
            assert!(Axes::parse(wrong).is_err(), "{wrong}");
        }
    }
}
