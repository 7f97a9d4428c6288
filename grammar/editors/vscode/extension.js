// Starts `parcost lsp` and connects the editor to it.
const vscode = require("vscode");
const { LanguageClient, TransportKind } = require("vscode-languageclient/node");

let client;

function makeClient() {
  const [command, ...args] = vscode.workspace.getConfiguration("parcost").get("command");
  const server = { command, args, transport: TransportKind.stdio };
  const options = {
    documentSelector: [{ language: "parcost" }],
    synchronize: { fileEvents: vscode.workspace.createFileSystemWatcher("**/*.par") },
  };
  return new LanguageClient("parcost", "Parcost", server, options);
}

async function start() {
  client = makeClient();
  try {
    await client.start();
  } catch (error) {
    const hint = "pip install 'parcost[lsp]', or name the command in the setting parcost.command";
    vscode.window.showErrorMessage(`Parcost: the server does not start (${error}). ${hint}`);
  }
}

async function stop() {
  const running = client;
  client = undefined;
  await running?.stop();
}

exports.activate = async (context) => {
  const restart = async () => {
    await stop();
    await start();
  };
  context.subscriptions.push(vscode.commands.registerCommand("parcost.restart", restart));
  await start();
};

exports.deactivate = stop;
