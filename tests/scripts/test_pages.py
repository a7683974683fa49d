"""The documentation site's pages, without mkdocs: navigation, links, and what is made of other
files.
"""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import fedclust.types
from fedclust.config.about import KEYS, about
from fedclust.config.options import Option, options
from fedclust.config.schema import keys
from fedclust.config.tree import choices as files_of
from fedclust.metrics import METRICS
from scripts.docs import choices, generated, links, methods, nav
from scripts.papers.results import with_score

DOCS = nav.DOCS
MADE = generated.pages()
HANDMADE = {file.relative_to(DOCS).as_posix(): file for file in sorted(DOCS.rglob("*.md"))}
BESIDE = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")


def site_nav() -> list[str]:
    return list(
        nav.pages_of(nav.filled(yaml.safe_load((links.ROOT / "mkdocs.yml").read_text())["nav"]))
    )


@pytest.fixture(scope="module")
def site() -> dict[str, str]:
    """The Markdown of every page of the site, as mkdocs gets it."""
    made = {place: make() for place, make in MADE.items()}
    written = {
        place: links.for_site(file.read_text(), f"docs/{place}", place)
        for place, file in HANDMADE.items()
    }
    return made | written


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as Python-Markdown makes them."""
    found = set()
    for heading in re.findall(
        r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M
    ):
        plain = unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode()
        plain = re.sub(r"[^\w\s-]", "", plain).strip().lower()
        found.add(re.sub(r"[-\s]+", "-", plain))
    return found


def test_every_page_is_in_the_navigation_once() -> None:
    listed = site_nav()
    assert sorted(listed) == sorted({*MADE, *HANDMADE})
    assert len(listed) >= 70
    assert "results/flexcfl/table2.md" in listed


@pytest.mark.full
def test_every_link_of_the_site_leads_to_a_page_a_file_or_a_heading(site: dict[str, str]) -> None:
    lost = []
    for place, text in site.items():
        for target in links.relative_links(text):
            path, _, anchor = target.partition("#")
            there = os.path.normpath(Path(place).parent / path)
            if there in site:
                if anchor and anchor not in anchors(site[there]):
                    lost.append(f"{place}: {target} has no such heading")
            elif not (DOCS / there).is_file():
                lost.append(f"{place}: {target}")
    assert lost == []
    assert "contributing.md" in links.relative_links(site["how-to/own-method.md"])[-1]


def test_every_link_leads_to_something_in_the_checkout_too() -> None:
    lost = []
    for file in [*BESIDE, *(f"docs/{place}" for place in HANDMADE)]:
        for target in links.relative_links((links.ROOT / file).read_text()):
            there = os.path.normpath(Path(file).parent / target.partition("#")[0])
            if not (links.ROOT / there).is_file() and there.removeprefix("docs/") not in MADE:
                lost.append(f"{file}: {target}")
    assert lost == []


def test_links_of_a_package_index_are_absolute_or_text() -> None:
    readme = (links.ROOT / "README.md").read_text()
    assert len(links.relative_links(readme)) > 20
    source = "https://host.example/fedclust"
    there = links.for_index(readme, source)
    assert links.relative_links(there) == []
    assert (
        f"![Test accuracy of five methods on rotated digits]({source}/raw/HEAD/docs/images/"
        in there
    )
    assert f"({source}/blob/HEAD/docs/statistics.md)" in there
    without = links.for_index(readme, None)
    assert links.relative_links(without) == []
    assert "![" not in without
    assert "Made by the first command" not in without  # the picture's caption goes with it
    assert "caused by the method (statistics)" in " ".join(without.split())


def test_links_in_code_and_anchors_stay() -> None:
    text = "[a](b.md)\n```\n[c](d.md)\n```\n[e](#f) ![g [h]](i.png)\n"
    assert links.relative_links(text) == ["b.md", "i.png"]
    assert links.for_index(text, None) == "a\n```\n[c](d.md)\n```\n[e](#f) g [h]\n"
    moved = links.for_site("[x](docs/trust.md#a) [y](conf/config.yaml)", "README.md", "a/b.md")
    assert moved == "[x](../trust.md#a) y"


def test_the_lists_of_methods_are_those_of_their_files() -> None:
    """`make lists` writes them anew."""
    assert methods.PAGE.read_text() == methods.page()
    for file in methods.COMPARISONS:
        text = file.read_text()
        assert methods.completed(text, methods.left_out(text)) == text
    for name in methods.NAMES:
        assert KEYS.keys() >= about(name).keys() >= {"kind", "paper", "run", "look", "reads"}


def test_methods_stand_below_the_heading_of_their_kind() -> None:
    page = methods.page()
    rows = {
        part.partition("\n")[0]: set(re.findall(r"^\| `(\w+)` ", part, re.MULTILINE))
        for part in page.split("\n## ")[1:]
    }
    assert rows["Reference points"] >= {"local", "oracle"}
    assert rows["One global model"] >= {"fedavg", "fedprox", "scaffold"}
    assert {"ditto", "feroma"} <= rows["Personalised: a model for every client"]
    assert {"lcfl", "ifca", "fedem"} <= rows["Clustered: a model for every cluster"]
    assert sorted(name for some in rows.values() for name in some) == methods.NAMES
    widest = [
        word for word in re.findall(r"`[^`]*`", page.partition("\n## What")[0]) if len(word) > 40
    ]
    assert widest == [], "a word that cannot be broken widens a column"


def test_the_readme_shows_how_a_method_of_ones_own_is_run() -> None:
    readme = (links.ROOT / "README.md").read_text()
    assert "fedclust run -m --config-dir mine algorithm=server_momentum,ifca\n" in readme


@pytest.mark.full
def test_no_page_of_the_site_tells_to_build_the_site(site: dict[str, str]) -> None:
    told = [place for place, text in site.items() if "that `make docs` builds" in text]
    assert told == []


def test_a_comparison_gets_the_methods_it_forgets() -> None:
    text = methods.COMPARISONS[0].read_text()
    without = text.replace("ifca,ifca_flex,", "ifca,").replace("ifca, ifca_flex,", "ifca,")
    made = methods.completed(without, methods.left_out(text))
    assert re.search(r"^      algorithm: [\w,]+,ifca_flex$", made, re.MULTILINE)
    assert re.search(r"^  order: .*, ifca_flex\]$", made, re.MULTILINE)
    assert made.count("ifca_flex") == 2
    assert "ifca_flex" not in methods.completed(made, ["ifca_flex"])


def test_the_readme_has_the_score() -> None:
    readme = (links.ROOT / "README.md").read_text()
    assert "**12 of 3**" in with_score(readme, "x\n**12 of 3**\n")


@pytest.mark.thinned
@pytest.mark.parametrize("group", choices.group_names())
def test_every_choice_and_option_of_a_group_is_on_its_page(group: str) -> None:
    page = choices.page(group)
    for name, file in files_of(group).items():
        assert f"\n## {name}\n" in page
        if group in choices.SETTINGS:
            continue
        section = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        written = yaml.safe_load(file.read_text())
        for key in written.keys() - {"_target_", "defaults", "about"}:
            assert re.search(rf"^\| `{key}[`.]", section, re.M), f"{name} lacks {key}"
        for key, option in options(group, name).items():
            referred = option.default.startswith("${")
            assert option.comment or option.group or referred, (
                f"conf/{group}/{name}.yaml says nothing of {key}"
            )


def test_options_have_their_own_defaults_and_the_comments_of_where_they_come_from() -> None:
    assert options("partition", "dirichlet")["alpha"] == Option(
        "0.5", "above 0; small: few classes per client, large: nearly iid"
    )
    assert options("dataset", "digits") == {}
    five = options("algorithm", "flexcfl_inter5")
    assert five["inter_group.rate"].default == "5.0"
    assert (
        five["inter_group.rate"].comment
        == options("algorithm", "flexcfl")["inter_group.rate"].comment
        != ""
    )
    lcfl = options("algorithm", "lcfl")
    assert lcfl["warmup"] == Option("federated", "another: warmup@algorithm.warmup=local", "warmup")
    missing = options("partition", "class_missing")
    assert missing["subsets"].default.startswith("[[0, 1, 2, 3, 4, 5, 6, 7, 8], [1, 2,")
    assert missing["min_per_cluster"].default == "6000"
    assert missing["alpha"].default == "0.5"
    pfedme = options("algorithm", "pfedme")
    assert pfedme["solver.weight_decay"].comment.startswith(">= 0, coefficient of the parameters")


@pytest.mark.parametrize("name", fedclust.types.__all__)
def test_the_reference_has_every_type_that_own_parts_import(name: str) -> None:
    page = (links.ROOT / "docs" / "reference" / "types.md").read_text()
    assert re.search(rf"\b{name}\b", page)


def test_every_key_and_metric_is_in_the_reference() -> None:
    top = generated.top_level()
    assert [key for key in keys() if f"`{key}`" not in top and f"]({key}.md)" not in top] == [
        "common",
        "tags",
    ]
    assert "| `seeds` | `1` | " in top
    assert "| `threads` | `null` | CPU threads" in top
    assert "| `common.swap_probability` | `0.05` | of scenario=swap_all" in top
    metrics = generated.metrics()
    assert all(f"| `{name}` | {meaning.text} |" in metrics for name, meaning in METRICS.items())


def commands() -> Iterator[tuple[str, list[str]]]:
    """Every `fedclust run` that stands in the pages, with its words."""
    for file in [links.ROOT / "README.md", *HANDMADE.values()]:
        for line in re.findall(r"(?:^(?: {4})?|`|-m )fedclust run ([^`#\n]*)", typed(file), re.M):
            yield file.name, re.findall(r"(?:'[^']*'|\"[^\"]*\"|\S)+", line)


def typed(file: Path) -> str:
    """A page whose commands stand on one line each."""
    return file.read_text().replace("\\\n", " ")


def test_every_line_of_a_command_is_one_or_says_that_it_goes_on() -> None:
    for file in HANDMADE.values():
        text = re.sub(r"^```.*?^```", "", typed(file), flags=re.M | re.S)
        assert not re.findall(r"^ {4}[\w.@]+=.*", text, re.M), file
    seen = 0
    for file, words in commands():
        seen += 1
        assert "fedclust" not in words, f"{file}: two commands on a line: {words}"
    assert seen > 100


def test_what_the_pages_tell_to_type_exists() -> None:
    mine = re.findall(
        r"^# mine/(\w+)/(\w+)\.yaml", "".join(f.read_text() for f in HANDMADE.values()), re.M
    )
    # which `fedclust example` writes, and the one that a reader has
    mine += [("algorithm", "server_momentum"), ("algorithm", "mine")]
    groups, seen = choices.group_names(), 0
    known = {
        group: {*files_of(group), *(name for where, name in mine if where == group)}
        for group in groups
    }
    known["experiment"] |= {"NAME"}
    for file, words in commands():
        if "[KEY=VALUE" in words:
            continue
        for word in words:
            key, _, value = word.strip("'\"").partition("=")
            group, _, option = key.partition("@")[0].partition(".")
            if not value or "…" in word or group.startswith(("hydra", "+")):
                continue
            seen += 1
            assert group in {*keys(), *groups}, f"{file}: {word}"
            if group in groups and not option:
                assert set(value.split(",")) <= known[group], f"{file}: {word}"
            elif group in groups and "@" not in key and not key.startswith("partition.base."):
                taken = {name for one in files_of(group) for name in options(group, one)}
                named = {name for name in taken if name == option or option.startswith(f"{name}.")}
                assert named or option in ("width", "every", "OPTION"), f"{file}: {word}"
    assert seen > 100


@pytest.mark.slow
def test_the_examples_of_the_how_to_pages_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written = []
    for file in [*sorted((DOCS / "how-to").glob("own-*.md")), DOCS / "how-to" / "attackers.md"]:
        for block, name in re.findall(
            r"^```\w+\n(# (mine/\S+)\n.*?)^```$", file.read_text(), re.M | re.S
        ):
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_text(block)
            written.append(name)
    assert len(written) == 18

    def done(*overrides: str) -> fedclust.Result:
        small = {
            "rounds": 3,
            "seeds": 1,
            "partition.num_clients": 8,
            "progress": False,
            "threads": 1,
        }
        return fedclust.run(*overrides, small, config_dir="mine", name=f"x/{overrides[0]}")

    try:
        lazy, fedavg = done("algorithm=lazy").rounds, done("algorithm=fedavg").rounds
        assert lazy["accuracy"][0] == lazy["accuracy"][1] == fedavg["accuracy"][0]
        assert lazy["accuracy"][2] != lazy["accuracy"][1]
        attacked = [
            done("algorithm=lazy", "attack=swelling", f"aggregation={rule}").rounds["test_loss"]
            for rule in ("mean", "clipped_median")
        ]
        assert attacked[1].iloc[-1] < attacked[0].iloc[-1]
        assert done("algorithm=watched").rounds["model_norm"].between(5, 20).all()
        sizes = {"small": 65 * 64 + 650, "normed": 64 + 65 * 64 + 650, "net": 80 + 1290}
        for model, parameters in sizes.items():
            found = done(f"model={model}", "algorithm=fedavg").rounds
            assert (found["bytes"] == 2 * 8 * 4 * parameters).all()
        parity = done("partition=parity", "algorithm=oracle").clients
        assert parity["group"].tolist() == [0, 1] * 4 * 3
        cosine = done("cluster_metric=model_cosine", "algorithm=lcfl", "algorithm.warmup.rounds=2")
        assert cosine.rounds["purity"].iloc[-1] == 1
    finally:
        for name in written:
            sys.modules.pop(Path(name).stem, None)


def test_the_tests_that_the_page_of_mistakes_names_exist() -> None:
    named = re.findall(r"tests/[\w/]+\.py", (DOCS / "mistakes.md").read_text())
    assert len(named) > 10
    assert [file for file in named if not (links.ROOT / file).is_file()] == []
