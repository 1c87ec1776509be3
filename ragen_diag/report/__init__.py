"""From a frozen `Result` to what a person reads: terminal lines, Markdown, plots, HTML, a folder.

Every renderer is a pure function of `Product`. Nothing here measures or judges: a number that a
report needs is in the result. matplotlib and jinja2 are imported by the modules that draw with
them (`plots`, `html`, `folder`), so that the terminal and Markdown texts load neither.
"""
