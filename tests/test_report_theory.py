"""``python -m zsl.report.theory``: the figures and the plain statements."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from zsl.errors import UserError
from zsl.report.theory import AWA2, Constants, default, load, main, sections


def text(found):
    return "\n".join(
        line for s in found for line in (s.title, *(f"{what}: {value}" for what, value in s.figures), *s.statements)
    )


def test_awa2_is_said_to_be_vacuous():
    said = text(sections(AWA2, Constants()))
    assert "bound on the deviation with 23,527 images: 85.3" in said
    assert "images needed for a deviation of 0.1: 3.87e+10" in said
    assert "VACUOUS: unit features under zero codes have a loss of 1, the bound is 85.3" in said
    assert "what the argument gives with 23,527 images: nothing" in said
    assert "epsilon_max is unknown" in said
    assert "the conclusion is reversed" in said


def test_each_part_is_there_beside_the_papers():
    Z = np.random.default_rng(0).normal(size=(10, 85))
    said = text(sections(AWA2._replace(Z_unseen=Z), Constants()))
    for part in ("Eq. 12", "Theorem 1", "Theorem 2", "Eq. 14", "Section 4.1", "Markov", "epsilon_max at zeta = 0.05"):
        assert part in said
    assert said.count("as printed") >= 4
    assert "45 distances cannot resolve zeta = 0.05" in said


def test_enough_images_are_said_to_be_enough():
    Z = 2 * np.eye(10)
    said = text(sections(AWA2._replace(n_images=10**14, Z_unseen=Z), Constants()))
    assert "Not vacuous" in said
    assert "what the argument gives with 100,000,000,000,000 images: 0.857" in said


def test_twins_leave_no_room():
    said = text(sections(AWA2._replace(Z_unseen=np.zeros((3, 85))), Constants()))
    assert "no number is enough" in said


def test_fewer_atoms_than_features():
    assert "Not applicable" in text(sections(AWA2._replace(r=500), Constants()))


@pytest.mark.parametrize(
    "wrong", [{"zeta": 1.0}, {"delta": 0.0}, {"xi": -1.0}, {"n_active": -1}, {"lipschitz": 0.0}, {"constant": 0.0}]
)
def test_constants_out_of_range(wrong):
    Z = np.eye(10)
    with pytest.raises(UserError, match=next(iter(wrong)) if "n_active" not in wrong else "entries"):
        sections(AWA2._replace(Z_unseen=Z, r=2560), Constants(**wrong))


def test_a_dataset(capsys):
    main(["--zeta", "0.3", "dataset=digits", "--n-atoms", "100"])
    out = " ".join(capsys.readouterr().out.split())
    assert "digits / pixels / fixed split" in out
    assert "r = 100 atoms, 3 unseen classes" in out
    assert "zeta = 0.3" in out


def test_a_mistake_is_one_sentence(capsys):
    with pytest.raises(SystemExit):
        main(["dataset=nonsense"])
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("zsl: ")
    assert captured.err.count("\n") == 1


def test_the_command_without_any_data(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "zsl.report.theory"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "AwA2's size" in done.stdout
    assert "VACUOUS" in done.stdout


def test_class_table_without_features(shared, monkeypatch):
    problem = load([f"data_dir={shared / 'xlsa17'}", "dataset=sun"])
    assert (problem.n_images, problem.p, problem.q, problem.n_unseen) == (10320, 2048, 102, 72)
    assert "features could not be read" in problem.note
    np.testing.assert_allclose(np.linalg.norm(problem.Z_unseen, axis=1), 1)
    monkeypatch.setenv("ZSL_DATA", str(shared / "xlsa17"))
    assert default().Z_unseen.shape == (10, 85)
    assert load(["dataset=awa2"]).n_images == AWA2.n_images


def test_real_features(cifar_awa):
    problem = load([f"dataset.root={cifar_awa}", "dataset=xlsa17", "feature.name=lite0_pca128"])
    assert (problem.p, problem.q, problem.r, problem.n_unseen) == (128, 85, 160, 4)
    assert "VACUOUS" in text(sections(problem, Constants()))
