"""What Python source of a bundle may name: data only, read by `intake.static_scan`.

Invariants
1. Imports are an allow-list. A root maps to None (open: every public name, less the denials below) or to the only
   members that may be used. A module that can reach files, processes or the interpreter is never open.
2. Denied attribute names hold on every object, because the object behind a name is not known before it runs.
3. Denied paths hold on names that are known to come from an allowed import.
4. This is defence in depth. The sandbox is what contains a bundle; see docs/bundle-identity.md.
"""

from __future__ import annotations

import re

from intake.suggest import words

IMPORTS: dict[str, frozenset[str] | None] = {
    **dict.fromkeys(
        words(
            "__future__ abc array bisect cmath collections contextlib copy cutlass dataclasses datetime decimal enum "
            "fractions functools heapq itertools json math numbers numpy queue random re statistics struct textwrap "
            "threading time torch triton typing typing_extensions weakref"
        )
    ),
    "io": words("BytesIO StringIO SEEK_CUR SEEK_END SEEK_SET"),
    "logging": words("getLogger NullHandler CRITICAL DEBUG ERROR INFO NOTSET WARNING"),
    "operator": words(
        "add and_ contains eq floordiv ge getitem gt index inv invert is_ is_not itemgetter le lshift lt matmul "
        "mod mul ne neg not_ or_ pos pow rshift sub truediv truth xor"
    ),
    "os": words("cpu_count curdir environ fspath getcwd getenv getpid linesep name path pathsep sep PathLike"),
    "string": words("ascii_letters ascii_lowercase ascii_uppercase digits hexdigits octdigits printable punctuation"),
    "sys": words(
        "byteorder float_info getrecursionlimit getsizeof hash_info hexversion implementation int_info maxsize "
        "maxunicode platform stderr stdout version version_info"
    ),
    "types": words("GenericAlias MappingProxyType MethodType NoneType NotImplementedType SimpleNamespace UnionType"),
    "warnings": words("catch_warnings filterwarnings simplefilter warn"),
}

# Never usable, but importing one of these names and leaving it alone is harmless.
TAINTED_IMPORTS = frozenset({("sys", "modules")})

# Builtins that turn text into code, names into attributes, or paths into files.
CODE_BUILTINS = words("eval exec compile __import__")
DENIED_BUILTINS = CODE_BUILTINS | words("open input breakpoint globals vars locals")
ATTRIBUTE_BUILTINS = words("getattr setattr delattr")
DENIED_NAMES = words("__builtins__ __globals__ __dict__ __loader__ __spec__ __path__")
DENIED_STRINGS = words("__import__ import_module")

# Builtin types of which a class pattern's one position means the object itself.
SELF_MATCHING = words("bool bytearray bytes dict float frozenset int list set str tuple")

_PROCESS = words(
    "system popen fork forkpty execv execve execvp execvpe execl execle execlp execlpe spawnv spawnve spawnvp "
    "spawnvpe spawnl spawnle spawnlp spawnlpe posix_spawn posix_spawnp kill killpg putenv unsetenv setuid "
    "setgid Popen check_output check_call getoutput getstatusoutput urlopen startfile"
)
_NATIVE = words(
    "dlopen LoadLibrary WinDLL CDLL PyDLL OleDLL cdll pydll windll ctypes ctypeslib cffi cpp_extension "
    "load_inline load_library load_binary CompilationUnit"
)
_FILES = words(
    "open fdopen memmap fromfile tofile from_file loadtxt savetxt genfromtxt fromregex savez savez_compressed "
    "dump save _save_for_lite_interpreter _builtin_open FileHandler FileIO basicConfig fromtextfile export_to_c "
    "dump_to_object _new_shared_filename_cpu _new_using_filename_cpu _new_shared_fd_cpu _share_filename_cpu_ "
    "_share_fd_cpu_ _set_from_file _new_with_file _write_file _load_from_bytes"
)
_CODE = words(
    "eval exec import_module load_module exec_module spec_from_file_location spec_from_loader "
    "module_from_spec runsource attrgetter methodcaller get_type_hints ForwardRef get_annotations breakpoint "
    "globals locals vars _unsafe_update_src evaluate_forward_ref update_wrapper py_impl _convert_ CodeType "
    "FunctionType LambdaType ModuleType"
)
_INTERPRETER = words(
    "f_globals f_locals f_builtins f_back f_code gi_frame gi_code cr_frame cr_code ag_frame ag_code tb_frame "
    "tb_next co_code co_consts func_globals _getframe _getframemodulename _current_frames settrace setprofile "
    "settrace_all_threads setprofile_all_threads meta_path path_hooks path_importer_cache addaudithook "
    "get_objects get_referrers get_referents obj"  # AttributeError.obj is the module that lacks the attribute
)
_MODULES = words(
    "builtins importlib marshal os posix shutil socket subprocess sys torch triton "
    # Modules that open modules hold, by names that nothing else of a kernel has.
    "bltns codecs codeop copyreg genericpath inspect linecache multiprocessing pathlib pickle pkgutil posixpath pty "
    "runpy tempfile tokenize traceback zipfile zipimport"
)
_DUNDERS = words(
    "__globals__ __builtins__ __subclasses__ __bases__ __mro__ mro __code__ __loader__ __dict__ __class__ "
    "__subclasshook__ __getattribute__ __base__ __import__ __spec__ __closure__ __func__ __wrapped__ "
    "__annotations__ __reduce__ __reduce_ex__ __setattr__ __delattr__ __getattr__ __traceback__ "
    "__init_subclass__ __set_name__ __defaults__ __kwdefaults__ __type_params__ __path__ __dataclass_fields__"
)
DENIED_ATTRIBUTES = _PROCESS | _NATIVE | _FILES | _CODE | _INTERPRETER | _MODULES | _DUNDERS | ATTRIBUTE_BUILTINS
DENIED_ATTRIBUTE_PREFIXES = ("register_module_", "_evaluate")

# Binding one of these attributes to a name that is never used is harmless; using it is not.
TAINTED_ATTRIBUTES = words("compile __self__")

# `load` on these names is refused even in a file that does not import them.
UNPICKLERS = words("pickle cpickle _pickle dill marshal cloudpickle joblib torch")

# Modules that other modules hold as attributes (`dataclasses.sys`), which an import list alone does not keep out.
LEAKED_MODULES = words(
    "ast asyncio atexit bltns builtins code codecs codeop concurrent copyreg ctypes dis gc genericpath glob "
    "importlib imp inspect io linecache logging marshal mmap mp multiprocessing operator os pathlib pickle pkgutil "
    "platform posix posixpath pty runpy shutil site socket ssl stat subprocess sys tempfile textwrap tokenize "
    "traceback types zipfile zipimport"
)

DENIED_PATHS = words(
    "torch.load torch.save torch.compile torch.export torch.fx torch.hub torch.package torch.serialization "
    "torch.multiprocessing torch.overrides torch.onnx torch.classes torch.jit.load torch.jit.save "
    "torch.jit.jit_module_from_flatbuffer torch.ops.load_library torch.ops.loaded_libraries torch.library.Library "
    "torch.library.define torch.library.impl torch.library.register_kernel torch.library.fallthrough_kernel "
    "torch.utils.cpp_extension torch.utils.data torch.utils.model_zoo torch.utils.benchmark torch.utils.collect_env "
    "torch.utils.bottleneck torch.utils.file_baton torch.distributed.rpc torch.distributed.elastic "
    "torch.distributed.launch torch.distributed.run torch.distributed.TCPStore torch.distributed.FileStore "
    "torch.distributed.init_process_group torch.distributed.new_group torch.distributed.checkpoint "
    "torch.distributed.nn torch.autograd.profiler torch.utils.tensorboard torch.utils.hipify "
    "torch.utils.show_pickle torch.utils.mobile_optimizer torch.ao torch.quantization torch.jit.annotations "
    "torch.jit.frontend contextlib.chdir time.clock_settime torch.profiler torch.monitor torch.cuda.memory "
    "torch.cuda.nvtx torch.cuda.CUDAPluggableAllocator numpy.load numpy.save numpy.lib.format numpy.lib.npyio "
    "numpy.f2py numpy.distutils numpy.testing numpy.core numpy.compat numpy.DataSource numpy.rec triton.compile "
    "triton.compiler triton.backends triton.tools triton.runtime.build triton.runtime.cache triton.knobs json.tool "
    "random.SystemRandom threading.excepthook weakref.finalize os.environ.update os.environ.__setitem__ "
    "os.environ.__delitem__ os.environ.__ior__ os.environ.setdefault os.environ.pop os.environ.popitem "
    "os.environ.clear sys.stdout.buffer sys.stderr.buffer typing.get_type_hints typing.ForwardRef "
    "sys.stdout.detach sys.stderr.detach sys.stdout.reconfigure sys.stderr.reconfigure time.clock_settime_ns "
    "contextlib.redirect_stdout contextlib.redirect_stderr dataclasses.fields dataclasses.make_dataclass "
    "enum.global_enum functools.singledispatch functools.singledispatchmethod numpy.test numpy.fft.test "
    "numpy.lib.test numpy.linalg.test numpy.ma.test numpy.ma.mrecords numpy.polynomial.test numpy.random.test "
    "torch.compiler.load_cache_artifacts torch.compiler.save_cache_artifacts torch.cuda.gds torch.cuda.profiler "
    "torch.cuda.tunable torch.xpu.memory torch.library.infer_schema torch.library.register_torch_dispatch "
    "torch.utils.rename_privateuse1_backend torch.utils.generate_methods_for_privateuse1_backend "
    "torch.utils.backend_registration torch.distributed.distributed_c10d torch.distributed.launcher "
    "torch.distributed.rendezvous torch.distributed.device_mesh torch.distributed.init_device_mesh "
    "torch.distributed.all_gather_object torch.distributed.broadcast_object_list torch.distributed.gather_object "
    "torch.distributed.scatter_object_list torch.distributed.send_object_list torch.distributed.recv_object_list "
    "triton.profiler triton.testing.nvsmi triton.testing.set_gpu_clock triton.testing.perf_report cutlass.backend "
    "cutlass.emit cutlass.cute.export cutlass.base_dsl.ast_preprocessor cutlass.base_dsl.cache_helpers "
    "cutlass.base_dsl.compiler cutlass.base_dsl.env_manager cutlass.base_dsl.export cutlass.base_dsl.jit_executor "
    "cutlass.base_dsl.runtime"
)
# What runs the texts that it finds in the thing it is given: usable only on what is defined right below it, where those
# texts have been read.
DECORATORS_ONLY = words(
    "dataclasses.dataclass torch.library.custom_op torch.library.triton_op functools.total_ordering"
)

# A call with one argument is fine; more would say which attributes of it are read, and set on something else.
PLAIN_CALLS_ONLY = words("functools.wraps")

# What no function, class or pattern may be called: it would say what a class holds where nobody reads it.
DENIED_DEFINITIONS = words("__prepare__ __dict__ __annotations__ __dataclass_fields__")
METACLASSES = words("abc.ABCMeta enum.EnumMeta enum.EnumType")

# Every proper prefix of a denied path holds something denied, so it may not travel as a value.
CONTAINERS = frozenset(path.rsplit(".", count)[0] for path in DENIED_PATHS for count in range(1, path.count(".") + 1))

# Submodules of open modules that share their name with a module that may not be imported.
_OWN_MODULES = frozenset({"torch.types", "torch.utils.io"})

# Private names of open modules that kernels have good reason to call.
_PRIVATE_ALLOWED = re.compile(
    r"_(?:scaled|foreach|weight|int|grouped|fused|softmax|log_softmax|experimental|assert)\w*"
)


def is_private(name: str) -> bool:
    """Say whether `name` is a private member that may not be reached through an import."""
    if not name.startswith("_") or (name.startswith("__") and name.endswith("__")):
        return False
    return _PRIVATE_ALLOWED.fullmatch(name) is None


def is_denied_attribute(name: str) -> bool:
    """Say whether `name` may not be read, written or deleted on any object."""
    return name in DENIED_ATTRIBUTES or name.startswith(DENIED_ATTRIBUTE_PREFIXES)


def path_problem(path: str) -> str:
    """Return why the dotted `path` of an allowed import may not be used, or "" when it may."""
    root, *members = path.split(".")
    allowed = IMPORTS[root]
    if allowed is not None and members and members[0] not in allowed:
        return f"{root}.{members[0]} is not on the list of members that may be used"
    reached = root
    for index, member in enumerate(members):
        reached = f"{reached}.{member}"
        if reached in DENIED_PATHS:
            return f"{reached} may not be used"
        if is_private(member):
            return f"{reached} is private"
        listed = index == 0 and allowed is not None
        if member in LEAKED_MODULES and not listed and reached not in _OWN_MODULES:
            return f"{reached} reaches a module that may not be imported"
    return ""
