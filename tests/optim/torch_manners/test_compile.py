"""torch.compile of the model, of `step`, or of both gives what eager gives."""

import pytest
import torch

from .cases import MSE, assert_same_models, each_watched, each_with_a_window, network, train

# Raised by torch itself: when it first imports Inductor, and for a loss that is given to a compiled function.
pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"),
]
# Bit for bit is promised with this backend alone: Inductor contracts a·b + c into one rounding.
_EXACT = "aot_eager"


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@each_with_a_window
def test_a_compiled_step_equals_an_eager_one(make):
    compiled, eager = network(), network()
    optimizer, reference = make(compiled), make(eager)
    step = torch.compile(optimizer.step, backend=_EXACT)
    assert train(optimizer, compiled, range(3), step=step) == train(reference, eager, range(3))
    assert_same_models(compiled, eager)


@each_with_a_window
def test_a_compiled_model_trains_as_the_eager_one(make):
    """Buffers are rolled back through it; it is the objective's model as well."""
    eager, inner = network(norm=True), network(norm=True)
    compiled = torch.compile(inner, backend=_EXACT)
    reports, expected = (train(make(net), net, range(4)) for net in (compiled, eager))
    assert [text.split(",")[:2] for text in reports] == [text.split(",")[:2] for text in expected]
    for value, other in zip(inner.state_dict().values(), eager.state_dict().values(), strict=True):
        torch.testing.assert_close(value, other, rtol=1e-4, atol=1e-5)


@each_watched
def test_a_whole_training_step_can_be_compiled(make):
    """The control runs outside the graph: it is no tensor program."""
    compiled, eager = network(), network()
    optimizer, reference = make(compiled), make(eager)
    x, y = torch.ones(4, 3), torch.zeros(4, 1)

    def training_step(model, one):
        one.zero_grad()
        loss = MSE(model(x), y)
        loss.backward()
        one.step(loss)

    whole = torch.compile(training_step, backend=_EXACT)
    for _ in range(6):
        whole(compiled, optimizer)
        training_step(eager, reference)
    for value, other in zip(compiled.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(value, other, rtol=1e-5, atol=1e-6)
