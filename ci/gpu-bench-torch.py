#!/usr/bin/env python3
"""The CUDA router beside PyTorch: torch.mm(out_dtype=float32) and PyTorch's operations, in one process, by the method
of docs/kernels.md (one CUDA graph each, cold and warm, spans by CUPTI, medians of replays that take turns).

Then Kimi-K3's merged front projection beside a product of its own and the router; and a decode step of 42 layers, in
which a kernel that reads 128 MiB stands in for attention and experts: what a router adds to the step. Steps are timed
by CUDA events, without CUPTI, which costs time between kernels.

Usage: gpu-bench-torch.py [--short] [--json FILE]. Needs torch, libsamebits_cuda.so and libsamebits_bench.so beside it.
Exit codes: 0 all measured, 2 something that is needed is missing, 4 something was not measured.
"""

import argparse
import ctypes
import importlib.util
import json
import pathlib
import random
import statistics
import sys

try:
    import torch
except ImportError as error:
    print(f"gpu-bench-torch: python3 has no torch ({error}); pip install torch", file=sys.stderr)
    sys.exit(2)

HERE = pathlib.Path(__file__).resolve().parent
SQRT_SOFTPLUS = 3
LAYERS, STAND_IN_BYTES, FLUSH_BYTES = 42, 128 << 20, 256 << 20
WARM_UPS = 8
LATENT_COLUMNS = 3584  # of Kimi-K3's latent projection

_spec = importlib.util.spec_from_file_location("gpu_torch", HERE / "gpu-torch.py")
gpu_torch = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(gpu_torch)
from_models = {name: spec for name, (_, _, spec) in gpu_torch.MODELS.items()}

# name: spec, mean, deviation, least and most of the biases
MODELS = {
    "glm-5.3-flash": (from_models["GLM-5.3-Flash"], (11.75, 0.07, 11.54, 11.96)),
    "deepseek-v3": (from_models["DeepSeek-V3"], (0, 0.1, -1, 1)),
    "qwen3-30b-a3b": (from_models["Qwen3-30B-A3B"], None),
    "kimi-k3": (gpu_torch.make_spec(hidden_size=7168, num_experts=896, top_k=16,
                                    **{**gpu_torch.BIASED, "routed_scaling_factor": 1}), (-0.1, 0.15, -0.76, 0.15)),
    "deepseek-v4.1-flash": (gpu_torch.make_spec(hidden_size=5120, num_experts=384, top_k=6,
                                                **{**gpu_torch.BIASED, "score_func": SQRT_SOFTPLUS,
                                                   "routed_scaling_factor": 1.5}),
                            (0, 0.1, -1, 1)),
}

FrontBlock = gpu_torch.structure("FrontBlock", [(gpu_torch.Tensor, "weight"),
                                                (gpu_torch.I32, "output_dtype reserved")])


def pointer(tensor):
    return ctypes.c_void_p(tensor.data_ptr())


def stream():
    return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)


class Clock:
    """libsamebits_bench.so."""

    def __init__(self, path, events=False):
        self.functions = ctypes.CDLL(str(path))
        self.functions.samebits_bench_error.restype = ctypes.c_char_p
        method = ctypes.create_string_buffer(1024)
        self.check(self.functions.samebits_bench_open(int(events), method, ctypes.c_size_t(len(method))))
        self.method = method.value.decode()

    def check(self, status):
        if status != 0:
            raise RuntimeError(self.functions.samebits_bench_error().decode())


class TimedGraph:
    """`capture(mark)` calls mark() `marks` times; replay() returns the spans between them, in us."""

    def __init__(self, clock, side_stream, marks, capture):
        self.clock, self.spans = clock, (ctypes.c_double * (marks - 1))()
        self.marks = ctypes.c_void_p()
        clock.check(clock.functions.samebits_bench_make_marks(marks, ctypes.byref(self.marks)))
        self.graph, self.stream, placed = torch.cuda.CUDAGraph(), side_stream, 0

        def mark():
            nonlocal placed
            clock.check(clock.functions.samebits_bench_mark(self.marks, placed, stream()))
            placed += 1

        with torch.cuda.stream(side_stream):
            self.graph.capture_begin()
            try:
                capture(mark)
            finally:
                self.graph.capture_end()

    def replay(self):
        self.clock.check(self.clock.functions.samebits_bench_forget(self.marks))
        with torch.cuda.stream(self.stream):
            self.graph.replay()
        self.stream.synchronize()
        self.clock.check(self.clock.functions.samebits_bench_read(self.marks, self.spans))
        return tuple(self.spans)

    def close(self):
        self.clock.functions.samebits_bench_free_marks(self.marks)
        self.graph.reset()


class Call:
    """One call of our router on preallocated tensors."""

    def __init__(self, router, hidden_states, logits=None):
        self.router, self.hidden_states, self.given = router, hidden_states, logits
        rows, spec = hidden_states.shape[0], router.spec
        self.ids = torch.empty(rows, spec.top_k, dtype=torch.int32, device="cuda")
        self.weights = torch.empty(rows, spec.top_k, device="cuda")
        functions = self.functions = router.library.functions
        size = functions.samebits_workspace_bytes(router.handle, gpu_torch.I64(rows))
        self.workspace = torch.empty(size, dtype=torch.uint8, device="cuda")
        status = functions.samebits_workspace_init(router.handle, pointer(self.workspace), ctypes.c_size_t(size),
                                                   stream())
        router.library.check(status, router.handle, "workspace_init")
        self.inputs = gpu_torch.Inputs(struct_size=ctypes.sizeof(gpu_torch.Inputs), num_tokens=rows)
        if logits is None:
            self.inputs.hidden_states = gpu_torch.matrix(hidden_states)
        else:
            self.inputs.router_logits = gpu_torch.matrix(logits)
        self.outputs = gpu_torch.Outputs(struct_size=ctypes.sizeof(gpu_torch.Outputs),
                                         topk_ids=gpu_torch.matrix(self.ids),
                                         topk_weights=gpu_torch.matrix(self.weights))

    def __call__(self):
        function = self.functions.samebits_route if self.given is None else self.functions.samebits_route_from_logits
        status = function(self.router.handle, ctypes.byref(self.inputs), ctypes.byref(self.outputs),
                          pointer(self.workspace), stream())
        self.router.library.check(status, self.router.handle, "route")


def torch_router(spec, weight, bias, hidden_states):
    """PyTorch's operations for these specs, as the models' reference code has them."""
    transposed = weight.T
    group_size = spec.num_experts // spec.n_group

    def route():
        logits = torch.mm(hidden_states, transposed, out_dtype=torch.float32)
        if spec.score_func == gpu_torch.SOFTMAX:
            scores = torch.softmax(logits, dim=-1)
        elif spec.score_func == gpu_torch.SIGMOID:
            scores = torch.sigmoid(logits)
        else:
            scores = torch.nn.functional.softplus(logits).sqrt()
        keys = scores if bias is None else scores + bias
        if spec.n_group > 1:
            groups = keys.view(-1, spec.n_group, group_size).topk(2, dim=-1)[0].sum(-1)
            kept = torch.zeros_like(groups).scatter_(1, groups.topk(spec.topk_group, dim=-1, sorted=False)[1], 1)
            keys = keys.masked_fill(kept.repeat_interleave(group_size, dim=1) == 0, float("-inf"))
        ids = keys.topk(spec.top_k, dim=-1)[1]
        weights = scores.gather(1, ids)
        return ids, weights / (weights.sum(-1, keepdim=True) + spec.eps) * spec.routed_scaling_factor

    return route


class Front:
    """Merged gate and latent projection, then the selection from its logits."""

    def __init__(self, router, weight, bias, latent_weight, hidden_states):
        library, rows = router.library, hidden_states.shape[0]
        functions = self.functions = library.functions
        functions.samebits_front_workspace_bytes.restype = ctypes.c_size_t
        functions.samebits_front_last_error.restype = ctypes.c_char_p
        host = [weight.cpu(), bias.cpu(), latent_weight.cpu()]
        constants = gpu_torch.Constants(struct_size=ctypes.sizeof(gpu_torch.Constants), memory=gpu_torch.HOST,
                                        gate_weight=gpu_torch.matrix(host[0]), selection_bias=gpu_torch.matrix(host[1]))
        block = FrontBlock(gpu_torch.matrix(host[2]), gpu_torch.BF16, 0)
        self.handle = ctypes.c_void_p()
        self.check(functions.samebits_front_create(ctypes.byref(router.spec), ctypes.byref(constants),
                                                   ctypes.byref(block), 1, ctypes.byref(self.handle)))
        self.logits = torch.empty(rows, router.spec.num_experts, device="cuda")
        self.latent = torch.empty(rows, LATENT_COLUMNS, dtype=torch.bfloat16, device="cuda")
        self.size = functions.samebits_front_workspace_bytes(self.handle, gpu_torch.I64(rows))
        self.workspace = torch.empty(self.size, dtype=torch.uint8, device="cuda")
        self.inputs = gpu_torch.Inputs(struct_size=ctypes.sizeof(gpu_torch.Inputs), num_tokens=rows,
                                       hidden_states=gpu_torch.matrix(hidden_states))
        self.tensors = gpu_torch.matrix(self.logits), gpu_torch.matrix(self.latent)
        self.select = Call(router, hidden_states, self.logits)

    def check(self, status):
        if status != 0:
            raise RuntimeError("samebits_front: " + self.functions.samebits_front_last_error(self.handle).decode())

    def __call__(self):
        self.check(self.functions.samebits_front_project(
            self.handle, ctypes.byref(self.inputs), ctypes.byref(self.tensors[0]), ctypes.byref(self.tensors[1]),
            pointer(self.workspace), ctypes.c_size_t(self.size), stream()))
        self.select()


class Model:
    def __init__(self, library, name, seed):
        self.name, (self.spec, biases) = name, MODELS[name]
        generator = torch.Generator("cuda").manual_seed(seed)
        shape = self.spec.num_experts, self.spec.hidden_size
        self.weight = (torch.randn(shape, generator=generator, device="cuda") * shape[1]**-0.5).bfloat16()
        self.bias = None
        if biases is not None:
            mean, deviation, least, most = biases
            self.bias = torch.randn(shape[0], generator=generator, device="cuda").mul_(deviation).add_(mean)
            self.bias.clamp_(least, most)
        self.router = gpu_torch.Router(library, self.spec, self.weight.cpu(),
                                       None if self.bias is None else self.bias.cpu())
        self.generator = generator

    def rows(self, count):
        return torch.randn(count, self.spec.hidden_size, generator=self.generator, device="cuda").bfloat16()

    def candidates(self, hidden_states):
        transposed = self.weight.T
        return {
            "samebits": Call(self.router, hidden_states),
            "torch.mm + ops": torch_router(self.spec, self.weight, self.bias, hidden_states),
            "torch.mm alone": lambda: torch.mm(hidden_states, transposed, out_dtype=torch.float32),
        }


def warm_up(side_stream, work):
    with torch.cuda.stream(side_stream):
        for _ in range(3):
            work()
    side_stream.synchronize()


def medians(graphs, repetitions):
    """{name: medians of the spans}; the replays of all graphs take turns, in an order that is drawn anew each time."""
    spans = {name: [] for name in graphs}
    for graph in graphs.values():
        for _ in range(WARM_UPS):
            graph.replay()
    order, draw = list(graphs), random.Random(1)
    for _ in range(repetitions):
        draw.shuffle(order)
        for name in order:
            spans[name].append(graphs[name].replay())
    return {name: [statistics.median(values) for values in zip(*taken)] for name, taken in spans.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="fewer row counts and repetitions")
    parser.add_argument("--json", type=pathlib.Path, help="write all numbers")
    options = parser.parse_args()
    places = [place for place in (HERE, HERE.parent / "dist-gpu") if (place / "libsamebits_bench.so").exists()]
    if not places:
        print("gpu-bench-torch: libsamebits_bench.so is not there; make it with ci/gpu-package", file=sys.stderr)
        return 2
    if not torch.cuda.is_available():
        print("gpu-bench-torch: torch finds no GPU", file=sys.stderr)
        return 2
    folder = places[0]
    rows = [1, 8, 16, 64, 128, 256, 1024, 4096] if options.short else [
        1, 2, 4, 6, 8, 16, 32, 64, 128, 256, 257, 512, 1024, 2048, 4096, 8192]
    step_rows = [1, 16, 64]
    repetitions = 20 if options.short else 60
    torch.backends.cuda.matmul.allow_tf32 = False
    library = gpu_torch.Library(folder / "libsamebits_cuda.so")
    models = {name: Model(library, name, seed) for seed, name in enumerate(MODELS)}
    side_stream, failures = torch.cuda.Stream(), []
    torch.cuda.synchronize()

    # --- alone: cold and warm ---
    clock = Clock(folder / "libsamebits_bench.so")
    flush_buffer = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    graphs, kept = {}, []

    def add(key, work):
        def capture(mark):
            clock.check(clock.functions.samebits_bench_flush(pointer(flush_buffer), stream()))
            for _ in range(2):
                mark()
                work()
            mark()
        try:
            kept.append(work)
            warm_up(side_stream, work)
            graphs[key] = TimedGraph(clock, side_stream, 3, capture)
        except Exception as error:  # the rest is still worth measuring
            failures.append(f"{key}: {error}")

    for name, model in models.items():
        for count in rows:
            hidden_states = model.rows(count)
            for candidate, work in model.candidates(hidden_states).items():
                add((name, count, candidate), work)
    kimi = models["kimi-k3"]
    latent_weight = (torch.randn(LATENT_COLUMNS, 7168, device="cuda") * 7168**-0.5).bfloat16()
    for count in rows:
        hidden_states = kimi.rows(count)
        separate = Call(kimi.router, hidden_states)
        try:
            merged = Front(kimi.router, kimi.weight, kimi.bias, latent_weight, hidden_states)
            add(("kimi-k3 + latent", count, "merged front"), merged)
        except Exception as error:
            failures.append(f"front, {count} rows: {error}")
        add(("kimi-k3 + latent", count, "torch.mm, samebits"),
            lambda x=hidden_states, route=separate: (torch.mm(x, latent_weight.T), route()))
    times = medians(graphs, repetitions)
    numbers = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "clock": clock.method,
               "repetitions": repetitions, "alone": [], "step": []}
    print(f"{numbers['gpu']}, torch {torch.__version__}, {clock.method}; medians of {repetitions}, us, cold / warm")
    for name in [*models, "kimi-k3 + latent"]:
        columns = list(dict.fromkeys(key[2] for key in graphs if key[0] == name))
        print(f"\n{name}\n{'rows':>6}" + "".join(f"  {column:<20}" for column in columns))
        for count in rows:
            line = f"{count:>6}"
            for column in columns:
                cold, warm = times.get((name, count, column), (float("nan"),) * 2)
                line += f"  {f'{cold:.2f} / {warm:.2f}':<20}"
                if cold == cold:
                    numbers["alone"].append({"spec": name, "rows": count, "what": column, "cold_us": cold,
                                             "warm_us": warm})
            print(line)
    for graph in graphs.values():
        graph.close()

    # --- inside a decode step ---
    clock = Clock(folder / "libsamebits_bench.so", events=True)
    blocks = torch.empty(4, STAND_IN_BYTES, dtype=torch.uint8, device="cuda")
    sink = torch.zeros(16, dtype=torch.int32, device="cuda")
    steps = {}
    for name in ("glm-5.3-flash", "kimi-k3"):
        for count in step_rows:
            candidates = models[name].candidates(models[name].rows(count))
            candidates["no router"] = lambda: None
            for candidate, work in candidates.items():
                def capture(mark, work=work):
                    mark()
                    for layer in range(LAYERS):
                        work()
                        clock.check(clock.functions.samebits_bench_stand_in(
                            pointer(blocks[layer % len(blocks)]), ctypes.c_size_t(STAND_IN_BYTES), pointer(sink),
                            stream()))
                    mark()
                try:
                    kept.append(work)
                    warm_up(side_stream, work)
                    steps[name, count, candidate] = TimedGraph(clock, side_stream, 2, capture)
                except Exception as error:
                    failures.append(f"step of {name}, {count} rows, {candidate}: {error}")
    step_times = medians(steps, repetitions)
    print(f"\n{LAYERS} layers with a stand-in of {STAND_IN_BYTES >> 20} MiB each, {clock.method}: us a layer without a "
          "router, and what one adds\n(in brackets: its cold time alone)")
    for (name, count, candidate), (us,) in step_times.items():
        bare = step_times.get((name, count, "no router"), [float("nan")])[0]
        added, alone = (us - bare) / LAYERS, times.get((name, count, candidate), [float("nan")])[0]
        numbers["step"].append({"spec": name, "rows": count, "what": candidate, "step_us": us,
                                "added_us_per_layer": added})
        text = f"{bare / LAYERS:8.2f} bare" if candidate == "no router" else f"+{added:7.2f} ({alone:.2f})"
        print(f"{name:<16} {count:>5} rows  {candidate:<16} {text}")
    for failure in failures:
        print(f"failed: {failure}")
    if options.json:
        options.json.write_text(json.dumps(numbers, indent=1) + "\n")
    return 4 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
