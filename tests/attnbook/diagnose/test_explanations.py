import math

import torch

from attnbook.diagnose.explanations import jensen_shannon, total_variation


def test_distances_of_distributions_by_hand():
    p = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.3, 0.7]])
    q = torch.tensor([[0.0, 1.0], [0.5, 0.5], [0.3, 0.7]])
    torch.testing.assert_close(total_variation(p, q), torch.tensor([1, 0.4, 0]))
    middle = 0.9 * math.log(0.9 / 0.7) + 0.1 * math.log(0.1 / 0.3)
    middle += 0.5 * math.log(0.5 / 0.7) + 0.5 * math.log(0.5 / 0.3)
    wanted = torch.tensor([math.log(2), middle / 2, 0.0])
    torch.testing.assert_close(jensen_shannon(p, q), wanted)
