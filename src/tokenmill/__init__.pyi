"""The public names, each with the module that defines it: the one list of them.

Type checkers and editors read this file, and so does `__init__.py`, which imports a name when it
is first used.
"""

from tokenmill.api.building import BuildReport as BuildReport
from tokenmill.api.building import build as build
from tokenmill.api.building import estimate as estimate
from tokenmill.api.building import recipe as recipe
from tokenmill.api.counting import count_words as count_words
from tokenmill.api.datasets import Dataset as Dataset
from tokenmill.api.datasets import check_tokenizer as check_tokenizer
from tokenmill.api.datasets import copy_dataset as copy_dataset
from tokenmill.api.datasets import open as open
from tokenmill.api.loading import mix as mix
from tokenmill.api.loading import mix_batches as mix_batches
from tokenmill.api.loading import text_loader as text_loader
from tokenmill.api.plans import compare_plans as compare_plans
from tokenmill.api.plans import export_rows as export_rows
from tokenmill.api.plans import make_plan as make_plan
from tokenmill.api.tokenizers import advise_vocabulary as advise_vocabulary
from tokenmill.api.tokenizers import extend_tokenizer as extend_tokenizer
from tokenmill.api.tokenizers import report_tokenizers as report_tokenizers
from tokenmill.api.tokenizers import train_tokenizer as train_tokenizer
from tokenmill.api.tokenizers import trim_tokenizer as trim_tokenizer
from tokenmill.export.rows import ExportManifest as ExportManifest
from tokenmill.load import masks as masks
from tokenmill.load.batches import Batches as Batches
from tokenmill.load.columns import BatchOptions as BatchOptions
from tokenmill.load.explanation import SegmentOrigin as SegmentOrigin
from tokenmill.load.masked_lm import MaskedLM as MaskedLM
from tokenmill.load.micro_batches import micro_batches as micro_batches
from tokenmill.load.opening import OrderOptions as OrderOptions
from tokenmill.load.rows.reader import RowReader as RowReader
from tokenmill.load.rows.reader import Targets as Targets
from tokenmill.load.rows.segmentation import Segmentation as Segmentation
from tokenmill.load.steps.curriculum import Curriculum as Curriculum
from tokenmill.load.steps.curriculum import Phase as Phase
from tokenmill.load.steps.curriculum import shortened as shortened
from tokenmill.load.steps.mixture import MixtureSource as MixtureSource
from tokenmill.load.text.options import TextStreamOptions as TextStreamOptions
from tokenmill.load.text.stream import TextStream as TextStream
from tokenmill.pack.figures import Figures as Figures
from tokenmill.pack.strategy import Pieces as Pieces
from tokenmill.pack.streaming import StreamPacker as StreamPacker
from tokenmill.permutation import Permutation as Permutation
from tokenmill.planning.comparison import Compared as Compared
from tokenmill.planning.packing import PlanReport as PlanReport
from tokenmill.report.estimate import Estimate as Estimate
from tokenmill.report.inspect import DocumentView as DocumentView
from tokenmill.report.inspect import view_document as view_document
from tokenmill.report.verify import Verification as Verification
from tokenmill.report.verify import verify as verify
from tokenmill.run.build import BuildEvents as BuildEvents
from tokenmill.run.count import CountEvents as CountEvents
from tokenmill.run.count import CountReport as CountReport
from tokenmill.run.recipe.checks import make_recipe as make_recipe
from tokenmill.run.recipe.files import load_recipe as load_recipe
from tokenmill.run.recipe.options import Recipe as Recipe
from tokenmill.store.copying.copy import CopyReport as CopyReport
from tokenmill.store.counts.folder import CountsFolder as CountsFolder
from tokenmill.store.counts.folder import open_counts as open_counts
from tokenmill.store.plan import Plan as Plan
from tokenmill.store.plan import open_plan as open_plan
from tokenmill.vocabulary.advice.advise import VocabularyAdvice as VocabularyAdvice
from tokenmill.vocabulary.changing.change import TokenizerChange as TokenizerChange
from tokenmill.vocabulary.training.train import TrainReport as TrainReport
