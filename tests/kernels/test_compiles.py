"""The kernels compile for a GPU, on machines that have none."""

import pytest

pytest.importorskip("triton")

SCRIPT = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from triton.experimental.gluon._runtime import GluonASTSource
from triton.experimental.gluon.language import NVMMASharedLayout, float16

from isice.kernels import ends, hopper, launch
from isice.kernels.newton_schulz import iterate

DTYPES = {"alive_parts": "*i8", "workspace": "*fp16", "counters": "*i32", "slots": "*i32"}
DTYPES |= dict.fromkeys(("n_stages", "batch", "D", "side", "left", "n_sums", "size"), "i32")
DTYPES |= dict.fromkeys(("beta", "shift", "scale", "derivative_scale", "power"), "fp32")
UNALIGNED = ("norms", "next_norms", "rates", "lams", "moments")


def shared(kernel, warps, stages, **constants):
    names = kernel.arg_names
    signature = {name: "constexpr" if name in constants else DTYPES.get(name, "*fp32") for name in names}
    values = {(names.index(name),): value for name, value in constants.items()}
    pointers = [name for name in names if signature[name].startswith("*") and name not in UNALIGNED]
    aligned = {(names.index(name),): [["tt.divisibility", 16]] for name in pointers}
    source = (GluonASTSource if kernel.is_gluon() else ASTSource)(kernel, signature, values, aligned)
    options = {"num_warps": warps, "launch_cooperative_grid": "GROUP" in constants}
    options |= {"maxnreg": 128} if kernel.is_gluon() else {"num_stages": stages}
    compiled = triton.compile(source, target=GPUTarget("cuda", CAPABILITY, 32), options=options)
    assert len(compiled.asm["cubin"]) > 0
    return compiled.metadata.shared


def described(rows, columns):
    return f"tensordesc<fp16[{rows}, {columns}],{NVMMASharedLayout.get_default_for([rows, columns], float16)!r}>"


CASES = [(256, False, 1, False), (256, True, 2, False)]
if CAPABILITY == 90:
    CASES += [(256, derivative, planes, True) for derivative in (False, True) for planes in (1, 2)]
for size, derivative, planes, for_hopper in CASES:
    block_k, depth, chains = launch.shape_of(size, planes, derivative, for_hopper)
    n_blocks = size // 64
    DTYPES |= {"straight": described(64, block_k), "across": described(block_k, 64)}
    used = shared(
        hopper.iterate if for_hopper else iterate, 4, depth, POWER=-1.0, DERIVATIVE=derivative, STEP=True,
        MOMENTS=derivative, SIDE=size, BLOCK=64, BLOCK_K=block_k, STRIP=launch._STRIP, PLANES=planes,
        N_TILES=n_blocks * (n_blocks + 1) // 2, N_SLOTS=10, GROUP=10,
        **({"CHAINS": chains, "DEPTH": depth} if for_hopper else {}),
    )
    assert used <= (113 if for_hopper else 99) * 1024, used  # two blocks on a Hopper GPU, one on those with the least
SIZES = {"N_TILES": 10, "N_BLOCKS": 4, "BLOCK": 64}
shared(ends._to_tiles, 4, 3, VECTOR=False, SYMMETRIZE=True, **SIZES)
shared(ends._from_tiles, 4, 3, VECTOR=False, **SIZES)
shared(ends._normalize, 4, 3, SPAN=256, **SIZES)
shared(ends._divide, 4, 3, SPAN=256, **SIZES)
shared(ends._norms, 8, 3, CHUNK=4096)
shared(ends._products, 4, 3, CHUNK=4096)
shared(ends._spread, 4, 3, SPAN=16, **SIZES)
shared(ends._weigh, 4, 3, **SIZES)
shared(ends._gather, 4, 3, **SIZES)
"""


@pytest.mark.parametrize("capability", [80, 90])
def test_the_kernels_compile(capability, compile_script):
    compile_script(SCRIPT, capability)
