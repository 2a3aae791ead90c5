//! Memory and values across the border to libtorch.

use super::*;
fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

#[test]
fn aligned_bytes_are_used_where_they_lie() {
    let values = [1.0_f32, 2.0, 3.0, 4.0];
    let mut memory = [0; 24];
    let start = memory.as_ptr().align_offset(4);
    memory[start..start + 16].copy_from_slice(&bytes(&values));
    let lent = Lent::over(&memory[start..start + 16], &[2, 2], Kind::Float).unwrap();
    assert_eq!(lent.tensor().data_ptr() as usize, memory.as_ptr() as usize + start);
    assert_eq!(Vec::<f32>::try_from(lent.tensor().reshape([-1])).unwrap(), values);
}

#[test]
fn bytes_at_an_odd_address_are_copied() {
    let values = bytes(&[1.5_f32, -2.5]);
    let (mut memory, mut out) = ([0; 16], [0; 16]);
    let odd = memory.as_ptr().align_offset(4) + 1;
    memory[odd..odd + 8].copy_from_slice(&values);
    let lent = Lent::over(&memory[odd..odd + 8], &[2], Kind::Float).unwrap();
    assert_eq!(Vec::<f32>::try_from(lent.tensor()).unwrap(), [1.5, -2.5]);
    let odd = out.as_ptr().align_offset(4) + 1;
    copy_out(lent.tensor(), Kind::Float, &mut out[odd..odd + 8]).unwrap();
    assert_eq!(out[odd..odd + 8], values);
}

#[test]
fn a_size_that_does_not_fit_the_shape_is_refused() {
    for shape in [&[2, 2][..], &[-2], &[i64::MAX, i64::MAX], &[0]] {
        assert!(Lent::over(&[0; 12], shape, Kind::Float).is_err(), "{shape:?}");
    }
    assert!(copy_out(&Tensor::from_slice(&[1_i32, 2]), Kind::Int, &mut [0; 12]).is_err());
}

#[test]
fn the_loan_ends_with_the_guard_even_if_the_tensor_lives_on() {
    let memory = vec![7_u8; 64];
    let lent = Lent::over(&memory, &[64], Kind::Uint8).unwrap();
    let kept = lent.tensor().shallow_clone();
    assert_eq!(kept.data_ptr() as usize, memory.as_ptr() as usize);
    drop(lent);
    assert_eq!(kept.numel(), 0);
    assert_ne!(kept.data_ptr() as usize, memory.as_ptr() as usize);
}

#[test]
fn results_are_written_in_c_order() {
    let transposed = Tensor::from_slice(&[1_i16, 2, 3, 4, 5, 6]).reshape([2, 3]).transpose(0, 1);
    let mut out = [0; 12];
    copy_out(&transposed, Kind::Int16, &mut out).unwrap();
    let values: Vec<i16> = out.chunks(2).map(|pair| i16::from_le_bytes([pair[0], pair[1]])).collect();
    assert_eq!(values, [1, 4, 2, 5, 3, 6]);
    copy_out(&Tensor::zeros([0, 3], (Kind::Float, Device::Cpu)), Kind::Float, &mut []).unwrap();
}
