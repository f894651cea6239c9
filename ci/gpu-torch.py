#!/usr/bin/env python3
"""PyTorch as a witness of the CUDA router that shares no code with it: libsamebits_cuda.so is called by ctypes on random
rows, for the routers of GLM-5.3-Flash, DeepSeek-V3 and Qwen3-30B-A3B.

Logits: compared with torch.mm(out_dtype=float32) and with an fp64 product, within bounds that are derived below.
Selection: this router's and that of transformers' router class are each compared with one in fp64, wherever the gap at
the cut is larger than what that router's logits (as they are) and its fp32 keys may be off. Weights: compared with
those of transformers. Exit codes: 0 all explained, 1 something lies outside of its bound, 2 something that is needed is missing.

Needs torch and transformers. With --library libsamebits.so it checks the CPU router, without a GPU.
"""

import argparse
import ctypes
import importlib
import math
import pathlib
import sys
import types

try:
    import torch
except ImportError as error:
    print(f"gpu-torch: python3 has no torch ({error}); pip install torch", file=sys.stderr)
    sys.exit(2)

U = 2.0**-24  # half a unit in the last place of fp32, relative
HERE = pathlib.Path(__file__).resolve().parent
HOST, DEVICE = 1, 2  # SAMEBITS_MEMORY_*
FP32, BF16, INT32 = 1, 2, 3
SOFTMAX, SIGMOID = 1, 2


# --- the C ABI (kernels/include/samebits/samebits.h) ---
def structure(name, fields):
    """A ctypes structure of (type, "names of fields") in order."""
    members = [(field, kind) for kind, names in fields for field in names.split()]
    return type(name, (ctypes.Structure,), {"_fields_": members})


I32, I64, F32, POINTER = ctypes.c_int32, ctypes.c_int64, ctypes.c_float, ctypes.c_void_p
Tensor = structure("Tensor", [(POINTER, "data"), (I64, "rows cols row_stride"), (I32, "dtype reserved")])
Spec = structure("Spec", [
    (ctypes.c_uint32, "struct_size"),
    (I32, "hidden_size num_experts top_k logits_dtype linear_bias_dtype input_norm input_scale_vector "
          "input_scale_rsqrt_hidden_size"),
    (F32, "input_norm_eps input_scale temperature softcap"),
    (I32, "score_func score_stage score_dtype selection_method rank_by selection_bias_dtype num_bias_variants n_group "
          "topk_group group_score group_mask topk_scope sort weight_source renormalize eps_mode"),
    (F32, "eps routed_scaling_factor"),
    (I32, "scale_stage per_expert_scale global_scale weights_dtype shared_experts shared_mode zero_experts zero_type "
          "hash_vocab_size"),
    (F32, "sparsemixer_jitter_eps")])
Constants = structure("Constants", [
    (ctypes.c_uint32, "struct_size"), (I32, "memory"),
    (Tensor, "gate_weight linear_bias selection_bias input_scale_vector per_expert_scale global_scale hash_table")])
Inputs = structure("Inputs", [
    (ctypes.c_uint32, "struct_size"), (I32, "reserved"), (I64, "num_tokens"), (Tensor, "hidden_states router_logits"),
    (POINTER, "num_valid_rows"), (Tensor, "token_ids row_class")])
Outputs = structure("Outputs", [
    (ctypes.c_uint32, "struct_size"), (I32, "block_size"), (Tensor, "topk_ids topk_weights router_logits"),
    (POINTER, "tokens_per_expert expert_offsets slot_of_position position_of_slot sorted_token_ids expert_ids "
              "num_tokens_post_padded"), (ctypes.c_char * 64, "kernel_name")])
Info = structure("Info", [
    (ctypes.c_uint32, "struct_size abi_version"), (ctypes.c_char * 64, "name"), (ctypes.c_char * 32, "version"),
    (ctypes.c_uint32, "memory_kinds"), (ctypes.c_char * 32, "arithmetic"),
    (I32, "determinism tie_break output_order returns_logits returns_bookkeeping max_experts max_top_k "
          "max_hidden_size"), (I64, "max_tokens")])


def matrix(tensor):
    """A Tensor of a dense matrix or vector of torch; the caller keeps it alive."""
    dtypes = {torch.float32: FP32, torch.bfloat16: BF16, torch.int32: INT32}
    rows, cols = tensor.shape if tensor.dim() == 2 else (1, tensor.shape[0])
    return Tensor(tensor.data_ptr(), rows, cols, cols, dtypes[tensor.dtype], 0)


class Library:
    """The functions of a router library, with errors as exceptions."""

    def __init__(self, path):
        self.functions = ctypes.CDLL(str(path))
        self.functions.samebits_workspace_bytes.restype = ctypes.c_size_t
        self.functions.samebits_last_error.restype = ctypes.c_char_p
        info = Info(struct_size=ctypes.sizeof(Info))
        self.check(self.functions.samebits_describe(ctypes.byref(info)), None, "describe")
        self.info = info
        self.device = torch.device("cuda" if info.memory_kinds & DEVICE else "cpu")

    def check(self, status, router, what):
        if status != 0:
            raise RuntimeError(f"samebits_{what}: {self.functions.samebits_last_error(router).decode()}")


class Router:
    """A router of a library: bf16 gate weight [E, H], fp32 selection bias [E] or None, both in host memory."""

    def __init__(self, library, spec, weight, bias):
        self.library, self.spec = library, spec
        constants = Constants(struct_size=ctypes.sizeof(Constants), memory=HOST, gate_weight=matrix(weight))
        if bias is not None:
            constants.selection_bias = matrix(bias)
        self.handle = ctypes.c_void_p()
        status = library.functions.samebits_create(ctypes.byref(spec), ctypes.byref(constants),
                                                   ctypes.byref(self.handle))
        library.check(status, None, "create")

    def route(self, hidden_states):
        """Ids [T, k], weights [T, k], logits [T, E] of rows [T, H]."""
        functions, device = self.library.functions, self.library.device
        rows = hidden_states.shape[0]
        ids = torch.full((rows, self.spec.top_k), -7, dtype=torch.int32, device=device)
        weights = torch.full((rows, self.spec.top_k), math.nan, device=device)
        logits = torch.full((rows, self.spec.num_experts), math.nan, device=device)
        size = functions.samebits_workspace_bytes(self.handle, I64(rows))
        workspace = torch.empty(size, dtype=torch.uint8, device=device)
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream if device.type == "cuda" else None)
        place = ctypes.c_void_p(workspace.data_ptr())
        self.library.check(functions.samebits_workspace_init(self.handle, place, ctypes.c_size_t(size), stream),
                           self.handle, "workspace_init")
        inputs = Inputs(struct_size=ctypes.sizeof(Inputs), num_tokens=rows, hidden_states=matrix(hidden_states))
        outputs = Outputs(struct_size=ctypes.sizeof(Outputs), topk_ids=matrix(ids), topk_weights=matrix(weights),
                          router_logits=matrix(logits))
        self.library.check(functions.samebits_route(self.handle, ctypes.byref(inputs), ctypes.byref(outputs), place,
                                                    stream), self.handle, "route")
        return ids, weights, logits, outputs.kernel_name.decode()


# --- the models ---
def make_spec(**fields):
    """A router that takes the k largest, sorted by key, and divides the weights by their sum."""
    values = dict(struct_size=ctypes.sizeof(Spec), logits_dtype=FP32, input_scale=1, temperature=1, score_stage=1,
                  score_dtype=FP32, selection_method=1, rank_by=1, n_group=1, topk_group=1, topk_scope=1, sort=1,
                  weight_source=1, renormalize=1, routed_scaling_factor=1, scale_stage=1, weights_dtype=FP32)
    values.update(fields)
    return Spec(**values)


BIASED = dict(score_func=SIGMOID, selection_bias_dtype=FP32, num_bias_variants=1, eps_mode=1, eps=1e-20,
              routed_scaling_factor=2.5)
MODELS = {
    # name: module and class of transformers, spec
    "GLM-5.3-Flash": ("glm5_next", "Glm5NextTextTopkRouter",
                      make_spec(hidden_size=4096, num_experts=288, top_k=8, **BIASED)),
    "DeepSeek-V3": ("deepseek_v3", "DeepseekV3TopkRouter",
                    make_spec(hidden_size=7168, num_experts=256, top_k=8, **{**BIASED, "n_group": 8, "topk_group": 4},
                              group_score=2, group_mask=1)),
    "Qwen3-30B-A3B": ("qwen3_moe", "Qwen3MoeTopKRouter",
                      make_spec(hidden_size=2048, num_experts=128, top_k=8, score_func=SOFTMAX)),
}


def transformers_router(module, class_name, spec, weight, bias, device):
    """The router class of transformers with fp32 parameters, so that its logits are fp32."""
    config = types.SimpleNamespace(
        num_experts_per_tok=spec.top_k, num_experts=spec.num_experts, num_local_experts=spec.num_experts,
        hidden_size=spec.hidden_size, norm_topk_prob=True, routed_scaling_factor=spec.routed_scaling_factor,
        n_group=spec.n_group, topk_group=spec.topk_group)
    router = getattr(importlib.import_module(f"transformers.models.{module}.modeling_{module}"), class_name)(config)
    router = router.float().to(device)
    with torch.no_grad():
        router.weight.copy_(weight)
        if bias is not None:
            router.e_score_correction_bias.copy_(bias)
    return router


# --- bounds; all are on the distance from the exact value ---
def logit_bounds(hidden_size, total):
    """(of this router, of any fp32 product), given sum |x||w| of each logit.

    This router: a step of 16 products cuts 17 magnitudes to multiples of 2^(emax-25), where 2^emax is at most the
    largest of them, and its result to 24 bits: at most (17 + 4) 2^-25 times the sum of magnitudes; a chunk is 16 steps.
    The fold of the chunks adds one rounding a chunk. 1.001 covers that the sums met are the computed ones; what a floor
    at 2^-133 loses is below 2^-120.

    Any other: fp32 sums of exact products in any order, gamma_H; tensor-core steps, (17 + 4) 2^-25 for 16 products, are
    within that.
    """
    chunks = math.ceil(hidden_size / 256)
    own = 1.001 * (16 * 21 * 2.0**-25 + (chunks - 1) * U) * total + 2.0**-120
    other = hidden_size * U / (1 - hidden_size * U) * total + 2.0**-120
    return own, other


def keys(spec, exact_logits, bias):
    """The fp64 keys that are ranked. Softmax: the logarithm of the score, up to what all experts of a row share."""
    return torch.sigmoid(exact_logits) + bias.double() if spec.score_func == SIGMOID else exact_logits


def kept_groups(spec, key):
    """Scores [T, n_group] of the groups in fp64, and the mask of those that are kept."""
    group_score = key.view(len(key), spec.n_group, -1).topk(2, dim=-1)[0].sum(-1)
    return group_score, torch.zeros_like(group_score).scatter_(1, group_score.topk(spec.topk_group, dim=-1)[1], 1).bool()


def chosen_experts(spec, key):
    """The fp64 selection as a mask [T, E], and the keys without those of the groups that are not kept."""
    if spec.n_group > 1:
        kept = kept_groups(spec, key)[1].repeat_interleave(spec.num_experts // spec.n_group, dim=1)
        key = key.masked_fill(~kept, -math.inf)
    return torch.zeros_like(key).scatter_(1, key.topk(spec.top_k, dim=-1)[1], 1).bool(), key


def decided_rows(spec, exact_logits, distance, bias):
    """The rows [T] for which a router whose logits have this distance [T, E] from the exact ones must choose as fp64 does.

    Key of a sigmoid router: s + b; s moves by at most a quarter of what the logit does, is formed to 4 ulp (8 U), and
    the sum is rounded. Key of a softmax router: it moves as the logit does, z - m is rounded, and exp and the quotient
    are formed to 4 ulp each.
    """
    key = keys(spec, exact_logits, bias)
    if spec.score_func == SIGMOID:
        spread = distance / 4 + 8 * U * torch.sigmoid(exact_logits) + 2 * U * key.abs()
    else:
        spread = distance + U * (key.amax(1, keepdim=True) - key + distance) + 16 * U
    decided = torch.ones(len(key), dtype=torch.bool, device=key.device)
    if spec.n_group > 1:
        group_score, kept = kept_groups(spec, key)
        # Each of the two best moves by at most the largest spread of the row; their sum is rounded.
        group_spread = 2 * spread.amax(1) + U * group_score.abs().amax(1)
        gap = group_score.masked_fill(~kept, math.inf).amin(1) - group_score.masked_fill(kept, -math.inf).amax(1)
        decided &= gap > 2 * group_spread
    chosen, key = chosen_experts(spec, key)
    lowest_chosen = (key - spread).masked_fill(~chosen, math.inf).amin(1)
    highest_other = (key + spread).masked_fill(chosen, -math.inf).amax(1)
    return decided & (lowest_chosen > highest_other)


def weight_bound(spec, exact_logits, distance):
    """Relative error [T, 1] of the weights of a router whose logits have this distance from the exact ones.

    A score's relative error is at most that of its logit as a factor, e^D - 1 (sigmoid: (1 - s) D is less), and 16 U for
    forming it, of softmax also U |z - m|; the sum of the k has the same and k roundings more; quotient, eps and scale
    have one each.
    """
    spread = exact_logits.amax(1, keepdim=True) - exact_logits.amin(1, keepdim=True)
    score = torch.expm1(distance.amax(1, keepdim=True)) + 16 * U + (U * spread if spec.score_func == SOFTMAX else 0)
    return 1.01 * (2 * score + (spec.top_k + 3) * U)


# --- one batch ---
def exceeds(name, found, wanted, bound, counts):
    """Counts elements further apart than the bound, and the largest share of it that was used."""
    share = ((found.double() - wanted.double()).abs() / bound).nan_to_num(nan=math.inf)
    counts[f"{name}: compared"] = counts.get(f"{name}: compared", 0) + share.numel()
    counts[f"{name}: outside of the bound"] = counts.get(f"{name}: outside of the bound", 0) + int((share > 1).sum())
    counts[f"{name}: largest share of the bound"] = max(counts.get(f"{name}: largest share of the bound", 0.0),
                                                        float(share.max()))


def add(counts, name, number):
    counts[name] = counts.get(name, 0) + int(number)


def judge_batch(router, witness, hidden_states, weight, bias, counts):
    spec = router.spec
    ids, weights, logits, kernel_name = router.route(hidden_states)
    add(counts, f"rows by {kernel_name}", len(ids))
    x, w = hidden_states.double(), weight.double()
    exact, total = x @ w.T, x.abs() @ w.abs().T  # fp64: 2^-29 of the bounds below
    own, other = logit_bounds(spec.hidden_size, total)
    exceeds("logits, fp64 product", logits, exact, own, counts)
    if hidden_states.is_cuda:
        product = torch.mm(hidden_states, weight.T, out_dtype=torch.float32)
    else:
        product = hidden_states.float() @ weight.float().T
    exceeds("logits, torch.mm", logits, product, own + other, counts)
    add(counts, "logits, torch.mm: equal bits", (logits == product).sum())

    witness_logits, witness_weights, witness_ids = witness(hidden_states.float())
    chosen, _ = chosen_experts(spec, keys(spec, exact, bias))
    sets, dense, bounds = [], [], []
    for name, its_ids, its_weights, its_logits in (("router", ids, weights, logits),
                                                   ("transformers", witness_ids, witness_weights, witness_logits)):
        distance = (its_logits.double() - exact).abs() + 2.0**-45 * total  # the last: of the fp64 product
        decided = decided_rows(spec, exact, distance, bias)
        sets.append(torch.zeros_like(chosen).scatter_(1, its_ids.long(), True))
        dense.append(torch.zeros_like(exact).scatter_(1, its_ids.long(), its_weights.double()))
        bounds.append(weight_bound(spec, exact, distance))
        differs = (sets[-1] != chosen).any(1)
        add(counts, f"selection, {name}: rows with a gap larger than the bound", decided.sum())
        add(counts, f"selection, {name}: unexplained rows", (differs & decided).sum())
        add(counts, f"selection, {name}: other rows", (~decided).sum())
        add(counts, f"selection, {name}: other rows with another choice", (differs & ~decided).sum())
    same = (sets[0] == sets[1]).all(1)
    add(counts, "selection: rows with the same experts", same.sum())
    bound = 1.01 * (bounds[0] + bounds[1]) * dense[1] + 2.0**-140
    exceeds("weights, transformers", dense[0][same], dense[1][same], bound[same], counts)


def make_rows(rows, hidden_size, generator):
    """Normal rows; every eighth is 8 times as large, every eighth has one value in 64 that is 30 times as large."""
    x = torch.randn(rows, hidden_size, generator=generator, device=generator.device)
    x[3::8] *= 8
    x[5::8] *= 1 + 29 * (torch.rand(x[5::8].shape, generator=generator, device=generator.device) < 1 / 64)
    return x.bfloat16()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=pathlib.Path, help="default: libsamebits_cuda.so beside this script")
    parser.add_argument("--rows", type=int, nargs="*", default=[1, 7, 64, 256, 257, 1000, 4096, 8192, 8192],
                        help="rows of the batches of each model")
    options = parser.parse_args()
    places = [options.library] if options.library else [HERE / "libsamebits_cuda.so",
                                                        HERE.parent / "dist-gpu/libsamebits_cuda.so"]
    path = next((place for place in places if place.exists()), None)
    if path is None:
        print(f"gpu-torch: {places[-1]} is not there; make it with ci/gpu-package", file=sys.stderr)
        return 2
    try:
        importlib.import_module("transformers")
    except ImportError as error:
        print(f"gpu-torch: python3 has no transformers ({error}); pip install transformers", file=sys.stderr)
        return 2
    library = Library(path.resolve())
    if library.device.type == "cuda" and not torch.cuda.is_available():
        print("gpu-torch: torch finds no GPU", file=sys.stderr)
        return 2
    torch.backends.cuda.matmul.allow_tf32 = False
    name = torch.cuda.get_device_name() if library.device.type == "cuda" else "CPU"
    print(f"{library.info.name.decode()} on {name}, torch {torch.__version__}")

    unexplained = 0
    for seed, (model, (module, class_name, spec)) in enumerate(MODELS.items()):
        generator = torch.Generator(library.device).manual_seed(seed)
        shape = (spec.num_experts, spec.hidden_size)
        weight = torch.randn(shape, generator=generator, device=library.device) * (2 / math.sqrt(spec.hidden_size))
        weight = weight.bfloat16()
        bias = None
        if spec.selection_bias_dtype:
            bias = 11.75 + 0.07 * torch.randn(spec.num_experts, generator=generator, device=library.device)
        router = Router(library, spec, weight.cpu(), None if bias is None else bias.cpu())
        witness = transformers_router(module, class_name, spec, weight, bias, library.device)
        counts = {}
        with torch.no_grad():
            for rows in options.rows:
                judge_batch(router, witness, make_rows(rows, spec.hidden_size, generator), weight, bias, counts)
        print(f"{model}: H {spec.hidden_size}, {spec.num_experts} experts, top {spec.top_k}; transformers' {class_name}")
        for what, number in counts.items():
            print(f"  {what:<66} {number:>12,}" if isinstance(number, int) else f"  {what:<66} {number:>12.4f}")
            if "outside" in what or "unexplained" in what:
                unexplained += number
    print("all explained" if unexplained == 0 else f"{unexplained} unexplained")
    return 0 if unexplained == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
