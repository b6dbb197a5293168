"""How different two colours look to readers with normal and deficient colour vision, and in grey print.

Deficiencies: the matrices of Machado, Oliveira and Fernandes (2009, doi 10.1109/TVCG.2009.113) at full severity, on
linear RGB. Distances: CIE 1976, in CIELAB under D65.
"""

import numpy as np

VISIONS = {
    "normal": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}
XYZ = np.array([[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.072175], [0.0193339, 0.119192, 0.9503041]])


def distances(first, second):
    """By vision, and in grey: what is left of the distance when only lightness is."""
    one, other = _linear(first), _linear(second)
    found = {
        name: float(np.linalg.norm(_lab(np.array(m) @ one) - _lab(np.array(m) @ other))) for name, m in VISIONS.items()
    }
    return found | {"grey": float(abs(_lab(one)[0] - _lab(other)[0]))}


def _linear(colour):
    channels = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def _lab(linear):
    ratio = XYZ @ np.clip(linear, 0, 1) / XYZ.sum(axis=1)
    root = np.where(ratio > (6 / 29) ** 3, np.cbrt(ratio), ratio / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * root[1] - 16, 500 * (root[0] - root[1]), 200 * (root[1] - root[2])])
