//! The two descriptions of the kernels' parameters, in Rust and in C++, and the list of kernels.

use triton_spleenseg::cuda::kernels::Kernel;
use triton_spleenseg::cuda::kernels::arguments::*;

#[test]
fn every_kernel_is_there_with_the_size_of_its_parameter() {
    for kernel in Kernel::ALL {
        let name = kernel.name();
        let found = host_kernels::find(name).unwrap().unwrap_or_else(|| panic!("{name} is not there"));
        let expected = match name.split('_').next().unwrap() {
            "foreground" => size_of::<ForegroundArguments>(),
            "resize" => size_of::<ResizeArguments>(),
            "argmax" => size_of::<ArgmaxArguments>(),
            "components" => size_of::<ComponentsArguments>(),
            "contour" => size_of::<ContourArguments>(),
            "convert" => size_of::<ConvertArguments>(),
            "native" => size_of::<NativeArguments>(),
            other => panic!("no structure for {other}"),
        };
        assert_eq!(found.argument_bytes(), expected, "{name}");
        assert_eq!(Kernel::ALL[*kernel as usize], *kernel);
    }
    assert!(host_kernels::find("no_such_kernel").unwrap().is_none());
}
