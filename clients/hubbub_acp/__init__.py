"""The bridge `hubbub acp`: an MCP server over stdio for one coding agent, which speaks ACP (Agent Client Protocol, 1).

The agent is started with the first turn and ends with the connection. All that is known of ACP is here:

    program        runs it: pipes of the host, signals, the end
    surface/       the MCP server: tools, resources, tasks, questions, in both families of revisions
    sessions/      what is known of a session: state, transcript, the record that outlives the process; turns
    agent/         the agent: its process, its lines, its requests (files and terminals below `--fs`)
    faults         what can go wrong, with a code for each
    plain_text     text of agents without escape sequences, and bounded

Each turn is a task of its own. Who called it waits for the turn, so that a call which is asked again, a task that is
polled and a call that waits are three ways to look at the same turn.
"""
