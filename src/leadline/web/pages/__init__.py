"""What the browser loads: one page, its styles, its ES modules and its words.

Nothing is built, and nothing is fetched from elsewhere. The server hands these files out under
`static/`, and beside them, under `static/vendor/`, the copy of uPlot that the reports use.

    index.html       the document; early.js runs before it is painted, for the theme
    modules/app.js   the shell: token, language, theme, and the view that the address names
    modules/api.js   the only module that asks the server
    modules/chart.js lines and maps, for every view; its first lines say how to use them
    modules/play/    the playground; `figure.js` is the small one that lessons show
    words/           the words of the shell in every language
"""
