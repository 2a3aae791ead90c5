// Every kernel, as one program.
#include "argmax.cu"
#include "components.cu"
#include "contour.cu"
#include "convert.cu"
#include "foreground.cu"
#include "native.cu"
#include "resize.cu"
