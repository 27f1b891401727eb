"""Language models as pure functions of their parameters."""

from jaxlab.models.blocks import KeyValues as KeyValues
from jaxlab.models.config import LlamaConfig as LlamaConfig
from jaxlab.models.llama import CausalLM as CausalLM
from jaxlab.models.llama import Params as Params
from jaxlab.models.load import Loaded as Loaded
from jaxlab.models.load import load as load
from jaxlab.models.safetensors_folders import export_safetensors as export_safetensors
from jaxlab.models.tokenizer import Tokenizer as Tokenizer
