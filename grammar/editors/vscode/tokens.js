// Prints the scopes of files as JSON, by the TextMate grammar beside it:
//
//   node tokens.js FILE...     {"FILE": [[line, start, end, "scope scope ..."], ...], ...}
const fs = require("fs");
const path = require("path");
const { INITIAL, Registry, parseRawGrammar } = require("vscode-textmate");
const oniguruma = require("vscode-oniguruma");

const GRAMMAR = path.join(__dirname, "syntaxes", "par.tmLanguage.json");

async function main(files) {
  const wasm = fs.readFileSync(require.resolve("vscode-oniguruma/release/onig.wasm"));
  await oniguruma.loadWASM(wasm);
  const registry = new Registry({
    onigLib: Promise.resolve({
      createOnigScanner: (patterns) => new oniguruma.OnigScanner(patterns),
      createOnigString: (text) => new oniguruma.OnigString(text),
    }),
    loadGrammar: async () => parseRawGrammar(fs.readFileSync(GRAMMAR, "utf8"), GRAMMAR),
  });
  const grammar = await registry.loadGrammar("source.parcost");
  const found = {};
  for (const file of files) {
    let stack = INITIAL;
    found[file] = fs.readFileSync(file, "utf8").split("\n").flatMap((line, number) => {
      const result = grammar.tokenizeLine(line, stack);
      stack = result.ruleStack;
      return result.tokens.map((t) => [number, t.startIndex, t.endIndex, t.scopes.join(" ")]);
    });
  }
  process.stdout.write(JSON.stringify(found));
}

main(process.argv.slice(2));
