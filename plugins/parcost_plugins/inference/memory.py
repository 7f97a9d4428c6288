"""Memory of a replica: weights, and the KV cache.

Tensor-parallel ranks share the KV heads. If there are more ranks than heads, several ranks hold the
same head. The compressed cache of latent attention has no heads, so every rank holds all of it.
"""

from __future__ import annotations

from parcost import Real, record
from parcost.numeric import floor, maximum, minimum, where
from parcost_plugins.inference.replica import Replica
from parcost_plugins.vocabulary import MemoryBudget


@record(kw_only=True, eq=False)
class ServingMemory:
    """Bytes on one device, except *per_token* and *weights*, which are of the whole model.

    *sequence* is the cache of one sequence of maximum length on one device, and *cache* the cache
    of all sequences. *available* is the memory left by weights and overheads.
    """

    per_token: Real
    weights: Real
    held: Real
    sequence: Real
    cache: Real
    overhead: Real
    usable: Real

    @classmethod
    def from_replica(cls, replica: Replica) -> ServingMemory:
        """Return the memory of *replica*."""
        serving, budget = replica.serving, replica.study[MemoryBudget]
        sequence = cache_read(replica, serving.longest) / serving.pp
        return cls(
            per_token=serving.model.layers * bytes_per_layer(replica),
            weights=(replica.dense + replica.expert) * serving.weights,
            held=replica.device_parameters * serving.weights,
            sequence=sequence,
            cache=sequence * serving.batch * serving.batches,
            overhead=budget.context + communicators(replica) * budget.communicator,
            usable=budget.usable * serving.device.memory,
        )

    @property
    def total(self) -> Real:
        """Most bytes in use on a device."""
        return self.held + self.cache + self.overhead

    @property
    def available(self) -> Real:
        """Bytes available for the cache, after weights and overheads."""
        return self.usable - self.held - self.overhead

    def largest_batch(self, batches: Real) -> Real:
        """Return the sequences per batch that fit, if *batches* batches are in flight."""
        return maximum(floor(self.available / (batches * self.sequence)), 0.0)


def communicators(replica: Replica) -> Real:
    """Return the number of communicators of more than one rank that a device uses.

    There is one for tensor-parallel ranks, one for stages, one for experts, and one for all
    devices.
    """
    serving = replica.serving
    degrees = [serving.tp, float(serving.pp), serving.ep]
    used = sum((where(ranks > 1, 1.0, 0.0) for ranks in degrees), 0.0)
    widest = maximum(maximum(serving.tp, float(serving.pp)), serving.ep)
    return used + where(replica.devices > widest, 1.0, 0.0)


def bytes_per_layer(replica: Replica) -> Real:
    """Return the cache bytes of one token in one layer, over all ranks, without copies."""
    model, element = replica.serving.model, replica.serving.kv
    if model.is_latent:
        return (model.kv_lora + model.rope_dim) * element
    return 2.0 * model.kv_heads * model.head_dim * element


def copies(replica: Replica) -> Real:
    """Return the number of tp ranks that have the same part of the cache.

    If the number of heads is unknown, every rank is assumed to have its own.
    """
    serving, model = replica.serving, replica.serving.model
    if model.is_latent:
        return serving.tp
    return where(model.heads > 0, maximum(serving.tp / model.kv_heads, 1.0), 1.0)


def cache_read(replica: Replica, tokens: Real) -> Real:
    """Return the cache bytes of one sequence of *tokens* on a rank, over all stages."""
    share = copies(replica) / replica.serving.tp
    return bytes_per_layer(replica) * share * tokens_kept(replica, tokens)


def tokens_kept(replica: Replica, tokens: Real) -> Real:
    """Return the cached tokens of a sequence of *tokens*, summed over the layers."""
    model, windowed = replica.serving.model, replica.windowed_layers
    inside = windowed * minimum(tokens, float(model.window)) if windowed else 0.0
    return (model.layers - windowed) * tokens + inside


def attention_over_cache(replica: Replica) -> Real:
    """Return the FLOPs of attention of a new token to the cache of its sequence, on all ranks.

    Latent attention works on the compressed keys and values, with a query of their size per head.
    """
    serving, model = replica.serving, replica.serving.model
    if model.is_latent:
        width = model.heads * (2.0 * model.kv_lora + model.rope_dim)
    else:
        width = 2.0 * where(model.heads > 0, model.heads * model.head_dim, model.hidden)
    return 2.0 * width * tokens_kept(replica, serving.context)
