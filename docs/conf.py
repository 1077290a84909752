"""The site: `make docs` builds it, `make docs-serve` shows it. What it loads comes with it."""

import inspect
import os
import re
from pathlib import Path

import torch
from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx import addnodes

import cmalight

project = "cmalight"
version = release = cmalight.__version__
copyright = "the cmalight maintainers, MIT licence"  # noqa: A001 (Sphinx's name)

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_click",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["pictures", "_static"]
nitpicky = True

default_role = "code"  # docstrings write names in single backticks
autodoc_typehints = "description"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
napoleon_use_ivar = True
# Types of other packages, and of ours that nobody is promised, are shown and lead nowhere.
nitpick_ignore_regex = [
    ("py:.*", r"(abc|collections|concurrent|functools|numpy|os|pandas|pathlib)\..*"),
    ("py:.*", r"(pydantic|sklearn|torch|typing)\..*"),
    ("py:class", r"[A-Z]\w*|(nn|np|npt)\..*|.* .*"),
    ("py:class", r"cmalight\.\w+\.\w+\..*|cmalight\.(errors|compiled|rules)\..*"),
]

myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
html_math_renderer = (
    "mathml"  # shown by the browser itself, so that no page loads a script from elsewhere
)
suppress_warnings = ["misc.highlighting_failure"]  # a console block may show a file in between

# The tutorials are scripts, which are run when the site is built; one that fails ends the build.
# Their steps are small: on several threads these would wait for each other.
torch.set_num_threads(1)
sphinx_gallery_conf = {
    "examples_dirs": ["../examples/tutorials"],
    "gallery_dirs": ["tutorials"],
    "filename_pattern": r"\.py",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "write_computation_times": False,
    "capture_repr": (),
    "show_signature": False,
    "nested_sections": False,
}

html_theme = "pydata_sphinx_theme"
html_title = "cmalight"
html_static_path = ["_static"]
html_favicon = "_static/favicon.svg"
html_extra_path = ["llms.txt"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_search_scorer = str(Path(__file__).with_name("scorer.js"))
html_show_sourcelink = False
html_theme_options = {
    "header_links_before_dropdown": 8,
    "navbar_align": "left",
    "navigation_with_keys": False,
    "show_nav_level": 2,
    "show_toc_level": 3,
    "secondary_sidebar_items": ["page-toc", "edit-this-page"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-light",
    "pygments_dark_style": "a11y-dark",
}
# Who the repository belongs to is known where it is published: GitHub's own variable.
repository = os.environ.get("GITHUB_REPOSITORY", "")
if repository:
    # Pages that are made of another file are edited there.
    sources = {"tutorials/index.rst": "examples/tutorials/GALLERY_HEADER.rst"}
    for script in Path(__file__).parents[1].glob("examples/tutorials/*.py"):
        sources[f"tutorials/{script.stem}.rst"] = f"examples/tutorials/{script.name}"
    for page, file in {
        "index": "CONTRIBUTING",
        "changelog": "CHANGELOG",
        "security": "SECURITY",
    }.items():
        sources[f"contribute/{page}.md"] = f"{file}.md"
    html_context = {
        "sources": sources,
        "edit_page_provider_name": "GitHub",
        "edit_page_url_template": f"https://github.com/{repository}/edit/main/"
        "{{ sources.get(file_name, 'docs/' ~ file_name) }}",
    }
    html_theme_options["use_edit_page_button"] = True
    html_theme_options["github_url"] = f"https://github.com/{repository}"

copybutton_prompt_text = "$ "
copybutton_line_continuation_character = "\\"


# w^k, f_S, ζ^{k+1}: an index of one sign or in braces, on a single letter, a sign that is not
# ASCII, or a bracket.
INDEX = re.compile(
    r"(?:(?<=[^\x00-\x7f)\]])|(?<=(?<![A-Za-z0-9_])[A-Za-z0-9]))"
    r"([\^_])(\{[^{}]*\}|up|[^\W_])(?![A-Za-z0-9_])"
)
AS_WRITTEN = (
    nodes.FixedTextElement,
    nodes.literal,
    nodes.math,
    nodes.raw,
    addnodes.desc_signature,
)


def set_indices(_, doctree):
    """Short formulas are plain text in the sources; the site raises and lowers their indices."""
    for text in list(doctree.findall(nodes.Text)):
        place = text
        while place is not None and not isinstance(place, AS_WRITTEN):
            place = place.parent
        if place is not None or not INDEX.search(text):
            continue
        plain, *rest = INDEX.split(text)
        pieces = [nodes.Text(plain)]
        for kind, index, after in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
            raised = nodes.superscript if kind == "^" else nodes.subscript
            pieces += [raised("", index.strip("{}")), nodes.Text(after)]
        text.parent.replace(text, pieces)


def add_address(_, docname, source):
    """The page on installing says where the copy of the repository comes from."""
    before = "From a copy of the repository:\n\n```\n"
    if docname == "start/install" and repository:
        lines = f"git clone https://github.com/{repository} && cd {repository.partition('/')[2]}\n"
        source[0] = source[0].replace(before, before + lines, 1)


def head_verbs(app, doctree):
    """On the command's page a verb is headed by all that one types: `cmalight bench run`."""
    if app.env.docname == "reference/command":
        for section in doctree.findall(nodes.section):
            typed = " ".join(section["names"])
            if typed.startswith("cmalight "):
                section[0].children = [nodes.Text(typed)]


def show_math(page, node):
    """Write a formula as MathML."""
    page.body.append(tex2mathml(node.astext(), as_block=isinstance(node, nodes.math_block)))
    raise nodes.SkipNode


def setup(app):
    """Types in signatures know the module that defines a class, not its public name.

    Docstrings name pages by their files; here they become links.
    """
    app.add_html_math_renderer("mathml", (show_math, None), (show_math, None))
    import cmalight.bench
    import cmalight.datasets
    import cmalight.training

    modules = (cmalight.bench, cmalight.datasets, cmalight.training, cmalight)
    public = {
        f"{thing.__module__}.{thing.__qualname__}": f"{module.__name__}.{name}"
        for module in modules
        for name in module.__all__
        if isinstance(thing := getattr(module, name), type)
    }

    def resolve(app, env, node, content):
        name = public.get(node.get("reftarget", ""))
        if node.get("refdomain") != "py" or name is None:
            return None
        domain = env.domains.python_domain
        return domain.resolve_xref(env, node["refdoc"], app.builder, "class", name, node, content)

    def show_arguments(*details):
        """Of an optimizer that defines `__new__`, Sphinx would show its arguments, which say nothing."""
        kind, _, thing = details[1:4]
        if kind != "class" or not issubclass(thing, torch.optim.Optimizer):
            return None
        _, *arguments = inspect.signature(thing.__init__).parameters.values()
        bare = [one.replace(annotation=one.empty) for one in arguments]
        return str(inspect.Signature(bare)), None

    def link_pages(*details):
        lines = details[-1]
        lines[:] = [re.sub(r"docs/([\w/-]+)\.md", r":doc:`/\1`", line) for line in lines]

    def hide_fields(app, *_):
        """Fields of specs and results have pages of their own; pydantic's types say nothing."""
        shown = app.env.current_document.autodoc_annotations
        for name in ("Run", "Result", "Spec"):
            shown.pop(f"cmalight.bench.{name}", None)

    app.connect("object-description-transform", hide_fields, priority=100)
    app.connect("source-read", add_address)
    app.connect("doctree-read", head_verbs, priority=400)  # before "On this page" is collected
    app.connect("doctree-read", set_indices)
    app.connect("missing-reference", resolve)
    app.connect("autodoc-process-docstring", link_pages)
    app.connect("autodoc-process-signature", show_arguments)
