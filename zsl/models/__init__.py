"""Zero-shot models: the paper's coupled dictionaries and other zero-shot methods."""

from zsl.models.abs_net_style import ABSNetStyle
from zsl.models.ale import ALE
from zsl.models.averaged import AveragedDictionaries
from zsl.models.base import AttributePredictor, InductiveModel, Model
from zsl.models.bidilel import BiDiLEL
from zsl.models.bucher_metric import BucherMetric
from zsl.models.cdl_jiang import CDLJiang
from zsl.models.class_norm import ClassNorm
from zsl.models.clip import CLIP, CLIPAdapter
from zsl.models.cmt import CMT
from zsl.models.conse import ConSE
from zsl.models.costa import COSTA
from zsl.models.coupled import CoupledDictionaries
from zsl.models.dap import DAP
from zsl.models.devise import DeViSE
from zsl.models.dipl import DIPL
from zsl.models.dsrl_style import DSRLStyle
from zsl.models.eszsl import ESZSL
from zsl.models.exem import EXEM
from zsl.models.fclswgan import FCLSWGAN
from zsl.models.gfzsl import GFZSL, GFZSLTransductive
from zsl.models.gmmn_style import GMMNStyle
from zsl.models.iap import IAP
from zsl.models.jlse_style import JLSEStyle
from zsl.models.kernel_eszsl import KernelESZSL
from zsl.models.late_fusion import LateFusion
from zsl.models.latem import LatEm
from zsl.models.lesd_style import LESDStyle
from zsl.models.mdp import MDP
from zsl.models.mfmr_joint_style import MFMRJointStyle
from zsl.models.mfmr_style import MFMRStyle
from zsl.models.ridge import Ridge
from zsl.models.ridge_reverse import RidgeReverse
from zsl.models.sae import SAE
from zsl.models.sje import SJE
from zsl.models.sse import SSE
from zsl.models.sync import SynC
from zsl.models.synthesis_gaussian import SynthesisGaussian
from zsl.models.transductive import TransductiveModel
from zsl.models.uvds_style import UVDSStyle
from zsl.models.vsc import BMVSc, CDVSc, WDVSc
from zsl.models.vsop import VSOP

__all__ = [
    "ALE",
    "CLIP",
    "CMT",
    "COSTA",
    "DAP",
    "DIPL",
    "ESZSL",
    "EXEM",
    "FCLSWGAN",
    "GFZSL",
    "IAP",
    "MDP",
    "SAE",
    "SJE",
    "SSE",
    "VSOP",
    "ABSNetStyle",
    "AttributePredictor",
    "AveragedDictionaries",
    "BMVSc",
    "BiDiLEL",
    "BucherMetric",
    "CDLJiang",
    "CDVSc",
    "CLIPAdapter",
    "ClassNorm",
    "ConSE",
    "CoupledDictionaries",
    "DSRLStyle",
    "DeViSE",
    "GFZSLTransductive",
    "GMMNStyle",
    "InductiveModel",
    "JLSEStyle",
    "KernelESZSL",
    "LESDStyle",
    "LatEm",
    "LateFusion",
    "MFMRJointStyle",
    "MFMRStyle",
    "Model",
    "Ridge",
    "RidgeReverse",
    "SynC",
    "SynthesisGaussian",
    "TransductiveModel",
    "UVDSStyle",
    "WDVSc",
]
