"""The public names of tokenmill, each with the module that defines it.

Type checkers and editors read this file. So does `__init__.py`, which imports a name the first
time it is used.
"""

__version__: str

from tokenmill.api.amending import amend as amend
from tokenmill.api.analysis import analyze as analyze
from tokenmill.api.building import BuildReport as BuildReport
from tokenmill.api.building import build as build
from tokenmill.api.building import estimate as estimate
from tokenmill.api.building import recipe as recipe
from tokenmill.api.counting import count_words as count_words
from tokenmill.api.datasets import Dataset as Dataset
from tokenmill.api.datasets import open as open
from tokenmill.api.finding import Findings as Findings
from tokenmill.api.finding import StringCount as StringCount
from tokenmill.api.finding import find as find
from tokenmill.api.loading import mix as mix
from tokenmill.api.loading import mix_batches as mix_batches
from tokenmill.api.loading import text_loader as text_loader
from tokenmill.api.plans import compare_plans as compare_plans
from tokenmill.api.plans import export as export
from tokenmill.api.plans import export_documents as export_documents
from tokenmill.api.plans import pack as pack
from tokenmill.api.provenance import provenance as provenance
from tokenmill.api.reporting import report as report
from tokenmill.api.selecting import select as select
from tokenmill.api.tokenizers import advise_vocabulary as advise_vocabulary
from tokenmill.api.tokenizers import extend_tokenizer as extend_tokenizer
from tokenmill.api.tokenizers import report_tokenizers as report_tokenizers
from tokenmill.api.tokenizers import train_tokenizer as train_tokenizer
from tokenmill.api.tokenizers import trim_tokenizer as trim_tokenizer
from tokenmill.core import errors as errors
from tokenmill.encode.encodings import RankEncoding as RankEncoding
from tokenmill.kernels.permutation import Permutation as Permutation
from tokenmill.load import masks as masks
from tokenmill.load.batches import Batches as Batches
from tokenmill.load.columns import BatchOptions as BatchOptions
from tokenmill.load.columns import MaskedLM as MaskedLM
from tokenmill.load.columns import micro_batches as micro_batches
from tokenmill.load.fill_in_middle import FillInMiddle as FillInMiddle
from tokenmill.load.rows.provenance import SegmentOrigin as SegmentOrigin
from tokenmill.load.rows.reader import RowReader as RowReader
from tokenmill.load.rows.reader import Targets as Targets
from tokenmill.load.rows.segmentation import Segmentation as Segmentation
from tokenmill.load.steps.batch_size import OrderOptions as OrderOptions
from tokenmill.load.steps.curriculum import Curriculum as Curriculum
from tokenmill.load.steps.curriculum import Phase as Phase
from tokenmill.load.steps.curriculum import shortened as shortened
from tokenmill.load.steps.mixture import MixtureSource as MixtureSource
from tokenmill.load.text.stream import TextStream as TextStream
from tokenmill.load.text.stream import TextStreamOptions as TextStreamOptions
from tokenmill.packing.comparison import Compared as Compared
from tokenmill.packing.figures import Figures as Figures
from tokenmill.packing.planning import PlanReport as PlanReport
from tokenmill.packing.strategy import Pieces as Pieces
from tokenmill.packing.streaming import StreamPacker as StreamPacker
from tokenmill.reports.estimate import Estimate as Estimate
from tokenmill.reports.given_data import GivenData as GivenData
from tokenmill.reports.inspect import DocumentView as DocumentView
from tokenmill.reports.inspect import view_document as view_document
from tokenmill.reports.lengths.analysis import Analysis as Analysis
from tokenmill.reports.overview import Overview as Overview
from tokenmill.reports.tokenizers.check import check_tokenizer as check_tokenizer
from tokenmill.reports.verify import Verification as Verification
from tokenmill.reports.verify import verify as verify
from tokenmill.run.pipeline import BuildEvents as BuildEvents
from tokenmill.run.pipeline import CountEvents as CountEvents
from tokenmill.run.recipe.checks import load_recipe as load_recipe
from tokenmill.run.recipe.checks import make_recipe as make_recipe
from tokenmill.run.recipe.options import Recipe as Recipe
from tokenmill.run.tasks.count import CountReport as CountReport
from tokenmill.store.copying.copy import CopyReport as CopyReport
from tokenmill.store.copying.copy import copy as copy
from tokenmill.store.counts.folder import CountsFolder as CountsFolder
from tokenmill.store.counts.folder import open_counts as open_counts
from tokenmill.store.exports import DocumentsManifest as DocumentsManifest
from tokenmill.store.exports import ExportManifest as ExportManifest
from tokenmill.store.plan import Plan as Plan
from tokenmill.store.plan import open_plan as open_plan
from tokenmill.store.selecting.finding import FoundDocument as FoundDocument
from tokenmill.store.selecting.finding import FoundUse as FoundUse
from tokenmill.vocabulary.advice.advise import VocabularyAdvice as VocabularyAdvice
from tokenmill.vocabulary.changing.change import TokenizerChange as TokenizerChange
from tokenmill.vocabulary.training.train import TrainReport as TrainReport
